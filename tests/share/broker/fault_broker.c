/* SPDX-License-Identifier: MIT */
/*
 * A client of a broker, with every kernel call and every pool failing in turn
 *
 * tests/support/fault/sweep.h says what must hold. Besides, after any failure the broker has
 * what it had, and what a successful call put there; and the connection works at the next
 * call. There is one exception. If the answer was lost, the broker may have done what it
 * was asked; the client learns that when it asks again.
 */
#include "tests/support/broker.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 100 * 1024, SEED = 77 };

static struct host host;
static struct {
	struct cow_broker *b, *other;
	struct cow_channel *in, *out;
	int fd[2];
} now;

static void enter(void)
{
	host_start(&host, NULL);
	now.other = host_connect(&host);
}

static void finish(void)
{
	now.in = cow_channel_free(now.in);
	now.out = cow_channel_free(now.out);
	for (int i = 0; i < 2; i++)
		if (now.fd[i]) {
			close(now.fd[i]);
			now.fd[i] = 0;
		}
	now.b = cow_broker_unref(now.b);
}

static void leave(void)
{
	now.other = cow_broker_unref(now.other);
	host_end(&host);
}

/* A broker that has one storage under a name, and one that is to be put there. */
static void ready(struct herd *herd)
{
	struct cow_broker_item item = host_item("there", COW_SHARE_SEALED);
	struct cow_storage *s;
	int r;

	sweep_finish(finish);
	now.b = host_connect(&host);
	sweep_add(herd, HERD_OWNED, new_storage(BYTES, 0), NULL, BYTES);
	item = host_item("new", COW_SHARE_SEALED);
	r = cow_broker_drop(now.other, &item);
	must(r == 0 || r == -ENOENT);
	item = host_item("there", COW_SHARE_SEALED);
	if (cow_broker_get(now.other, &item, &s, NULL) == -ENOENT) {
		s = new_filled(BYTES, 0, SEED);
		ok(cow_broker_put(now.other, s, &item));
	}
	cow_storage_unref(s);
}

static void nobody(struct herd *herd)
{
	(void)herd;
	sweep_finish(finish);
}

static int open_it(struct herd *herd)
{
	struct cow_broker_options o = { .size = sizeof(o), .address = host.address };
	int r;

	(void)herd;
	now.b = SWEEP_UNTOUCHED;
	r = cow_broker_open(&o, &now.b);
	if (r < 0) {
		ck_assert_ptr_eq(now.b, SWEEP_UNTOUCHED);
		now.b = NULL;
		must(cow_last_error()[0] != '\0');
	}
	return r;
}

/* Put by one, got by another: with its bytes. */
static void there(struct herd *herd, struct cow_broker_item *item)
{
	struct animal *a = &herd->animals[HERD_OWNED];
	struct cow_storage *s;

	ok(cow_broker_get(now.other, item, &s, NULL));
	ck_pattern(data(s), a->bytes, a->seed);
	cow_storage_unref(s);
}

static int put_as(struct herd *herd, const char *name, enum cow_share_mode mode,
                  uint32_t flags)
{
	struct cow_broker_item item = host_item(name, mode), before;
	int r;

	item.flags = flags;
	before = item;
	r = cow_broker_put(now.b, herd->animals[HERD_OWNED].storage, &item);
	if (r == -EEXIST) {
		/* Of the try before the answer was lost alone. */
		ok(cow_broker_drop(now.other, &item));
		r = cow_broker_put(now.b, herd->animals[HERD_OWNED].storage, &item);
	}
	(void)fault_disarm();
	if (r < 0) {
		must(memcmp(&item, &before, sizeof(item)) == 0);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	there(herd, &item);
	return 0;
}

static int put_named(struct herd *herd)
{
	return put_as(herd, "new", COW_SHARE_SEALED, 0);
}

static int put_alias(struct herd *herd)
{
	return put_as(herd, "new", COW_SHARE_ALIAS, COW_BROKER_EPHEMERAL);
}

static int put_token(struct herd *herd)
{
	return put_as(herd, "", COW_SHARE_CLONE, 0);
}

static int put_once(struct herd *herd)
{
	return put_as(herd, "", COW_SHARE_CLONE, COW_BROKER_ONCE);
}

static int get(struct herd *herd)
{
	struct cow_broker_item item = host_item("there", 0), got = { .bytes = 1 };
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_broker_get(now.b, &item, &s, &got);

	(void)herd;
	(void)fault_disarm();
	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		ck_assert_uint_eq(got.bytes, 1);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	ck_assert_uint_eq(got.bytes, BYTES);
	ck_pattern(data(s), BYTES, SEED);
	cow_storage_unref(s);
	return 0;
}

static int list(struct herd *herd)
{
	struct cow_broker_item got = { .bytes = 1 };
	uint64_t cursor = 0;
	int r = cow_broker_list(now.b, &cursor, &got);

	(void)herd;
	(void)fault_disarm();
	if (r < 0) {
		ck_assert_uint_eq(got.bytes, 1);
		ck_assert_uint_eq(cursor, 0);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	ck_assert_int_eq(r, 1);
	ck_assert_str_eq(got.name, "there");
	ck_assert_int_eq(host_objects(now.b), 1);
	return 0;
}

/* Drops a storage that it put itself, which must not come back at the next connection. */
static void put_before(struct herd *herd)
{
	ready(herd);
	ok(put_named(herd));
}

static int drop(struct herd *herd)
{
	struct cow_broker_item item = host_item("new", COW_SHARE_SEALED);
	int r = cow_broker_drop(now.b, &item);

	(void)fault_disarm();
	if (r == -ENOENT)
		r = 0; /* the first answer was lost */
	if (r < 0) {
		must(cow_last_error()[0] != '\0');
		return r;
	}
	ck_assert_int_eq(host_objects(now.other), 1);
	ok(cow_broker_refresh(now.b));
	ck_assert_int_eq(host_objects(now.other), 1);
	(void)herd;
	return 0;
}

/* The broker was killed: the client puts all again. */
static void restarted(struct herd *herd)
{
	put_before(herd);
	now.other = cow_broker_unref(now.other);
	host_kill(&host);
	host_again(&host, NULL);
	now.other = host_connect(&host);
}

static int refresh(struct herd *herd)
{
	struct cow_broker_item item = host_item("new", COW_SHARE_SEALED);
	int r = cow_broker_refresh(now.b);

	(void)fault_disarm();
	if (r < 0)
		must(cow_last_error()[0] != '\0');
	else
		there(herd, &item);
	return r;
}

static void refreshed(struct herd *herd)
{
	put_before(herd);
	ok(cow_broker_refresh(now.b));
}

/* ---- Channels by way of it -------------------------------------------------------- */

static void channels(struct herd *herd)
{
	ready(herd);
	ok(cow_strategy_set(COW_STRATEGY_BROKER, now.other));
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
	                now.fd) == 0);
	ok(cow_channel_new(now.fd[0], NULL, 0, &now.out));
	ok(cow_channel_new(now.fd[1], NULL, 0, &now.in));
}

static int send_it(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_OWNED];
	struct cow_parcel p = { .storage = a->storage, .length = BYTES,
		                .mode = COW_SHARE_CLONE }, q;
	long r = cow_channel_send(now.out, &p, 1, NULL, 0);

	if (r == 1)
		r = cow_channel_flush(now.out);
	(void)fault_disarm();
	if (r < 0) {
		must(cow_last_error()[0] != '\0');
		/* After a failure of the socket itself a channel is done for. */
		finish();
		herd_free(herd);
		channels(herd);
		return (int)r;
	}
	ck_assert_int_eq(cow_channel_receive(now.in, &q, 1, NULL, 0, NULL), 1);
	ck_pattern(data(q.storage), a->bytes, a->seed);
	cow_storage_unref(q.storage);
	return 0;
}

static int strategy(struct herd *herd)
{
	(void)herd;
	ok(cow_strategy_set(COW_STRATEGY_FD, now.other));
	ck_assert_int_eq(cow_strategy_get(), COW_STRATEGY_FD);
	ok(cow_strategy_set(COW_STRATEGY_BROKER, NULL));
	ck_assert_int_eq(cow_strategy_get(), COW_STRATEGY_BROKER);
	return 0;
}

static const struct operation operations[] = {
	{ "open", nobody, open_it },
	{ "put under a name", ready, put_named },
	{ "put an alias", ready, put_alias },
	{ "put under a token", ready, put_token },
	{ "put for one", ready, put_once },
	{ "get", ready, get },
	{ "list", ready, list },
	{ "drop", put_before, drop },
	{ "refresh", refreshed, refresh },
	{ "refresh at another", restarted, refresh },
	{ "send a token", channels, send_it },
	{ "strategy", channels, strategy, SWEEP_NOTHING },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
	if (cow_strategy_get() == COW_STRATEGY_BROKER)
		ok(cow_strategy_set(COW_STRATEGY_FD, NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_broker");
	TCase *tcase = add_case(suite, "fault_broker");

	tcase_add_checked_fixture(tcase, enter, leave);
	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	return run_suite(suite);
}
