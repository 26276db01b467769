/* SPDX-License-Identifier: MIT */
/*
 * Clients of one broker: what one learns of another's storages, and what is left for it
 *
 * A client that knows a token can get the storage. So a list shows each connection only its
 * own tokens. Tokens are 128 random bits, so none can be guessed from others. One user's
 * connections leave some for other users.
 */
#include "tests/support/broker.h"

#include <cowshed-broker.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Tokens ------------------------------------------------------------------- */

struct seen {
	int own, foreign; /* nameless items with and without their token */
	struct cow_token token;
};

static struct seen list(struct cow_broker *b)
{
	struct seen seen = { 0 };
	struct cow_broker_item got;
	uint64_t cursor = 0;
	int r;

	while ((r = cow_broker_list(b, &cursor, &got)) == 1) {
		if (got.name[0])
			continue;
		if (got.token.a || got.token.b) {
			seen.own++;
			seen.token = got.token;
		} else {
			seen.foreign++;
		}
	}
	ck_assert_int_eq(r, 0);
	return seen;
}

static bool same(struct cow_token x, struct cow_token y)
{
	return x.a == y.a && x.b == y.b;
}

static void is_told_none(void *arg)
{
	struct cow_broker *b = host_connect(arg);
	struct seen seen = list(b);

	ck_assert_int_eq(seen.own, 0);
	ck_assert_int_eq(seen.foreign, 2);
	cow_broker_unref(b);
}

/* Two connections, of one process, and a third, of another. */
START_TEST(list_tells_a_connection_its_own_tokens)
{
	struct cow_storage *s = new_filled(PAGE, 0, 1), *r;
	struct cow_broker_item item[2] = { host_item("", COW_SHARE_SEALED),
		                           host_item("", COW_SHARE_CLONE) };
	struct cow_broker *b[2];
	struct seen seen;
	struct host host;

	host_start(&host, NULL);
	for (int i = 0; i < 2; i++) {
		b[i] = host_connect(&host);
		item[i].permissions = 0666;
		ok(cow_broker_put(b[i], s, &item[i]));
	}
	for (int i = 0; i < 2; i++) {
		seen = list(b[i]);
		ck_assert_int_eq(seen.own, 1);
		ck_assert_int_eq(seen.foreign, 1);
		ck_assert(same(seen.token, item[i].token));
	}
	in_child(is_told_none, &host);
	/* A connection that holds it, too, has sent its token. */
	ok(cow_broker_get(b[1], &item[0], &r, NULL));
	ok(cow_broker_put(b[1], r, &item[0]));
	ck_assert_int_eq(list(b[1]).own, 2);
	ck_assert_int_eq(list(b[0]).own, 1);
	cow_storage_unref(r);
	cow_storage_unref(s);
	cow_broker_unref(b[0]);
	cow_broker_unref(b[1]);
	host_end(&host);
}
END_TEST

enum { MAKERS = 3, EACH = 32, TOKENS = MAKERS * EACH };

struct maker {
	struct host *host;
	struct gate made;
};

static void make(struct host *host, struct cow_token to[EACH])
{
	struct cow_storage *s = new_storage(0, 0);
	struct cow_broker *b = host_connect(host);

	for (int i = 0; i < EACH; i++) {
		struct cow_broker_item item = { .mode = COW_SHARE_SEALED };

		ok(cow_broker_put(b, s, &item));
		to[i] = item.token;
	}
	cow_broker_unref(b);
	cow_storage_unref(s);
}

static void makes(void *arg)
{
	struct maker *m = arg;
	struct cow_token t[EACH];

	make(m->host, t);
	gate_send(&m->made, t, sizeof(t));
}

static uint64_t distance(uint64_t x, uint64_t y)
{
	return x - y < y - x ? x - y : y - x;
}

/* Of one process and two that it forked after it had made some. By chance this fails
 * once in 2^30 runs. */
START_TEST(tokens_are_random)
{
	struct cow_token t[TOKENS], any = { 0, 0 }, all = { ~0ull, ~0ull };
	struct host host;
	struct maker m = { .host = &host };

	host_start(&host, NULL);
	gate_make(&m.made);
	make(&host, t);
	for (int i = 1; i < MAKERS; i++) {
		in_child(makes, &m);
		gate_receive(&m.made, t + (size_t)i * EACH, sizeof(t) / MAKERS);
	}
	for (int i = 0; i < TOKENS; i++) {
		any = (struct cow_token){ any.a | t[i].a, any.b | t[i].b };
		all = (struct cow_token){ all.a & t[i].a, all.b & t[i].b };
		for (int j = 0; j < i; j++) {
			ck_assert_uint_gt(distance(t[i].a, t[j].a), 1 << 16);
			ck_assert_uint_gt(distance(t[i].b, t[j].b), 1 << 16);
		}
		/* No steps of one length, however long. */
		if (i >= 2) {
			ck_assert(t[i].a - t[i - 1].a != t[i - 1].a - t[i - 2].a);
			ck_assert(t[i].b - t[i - 1].b != t[i - 1].b - t[i - 2].b);
		}
		ck_assert_uint_gt(distance(t[i].a, t[i].b), 1 << 16);
	}
	/* Every bit is set in one and clear in another. */
	ck_assert(same(any, (struct cow_token){ ~0ull, ~0ull }));
	ck_assert(same(all, (struct cow_token){ 0, 0 }));
	gate_free(&m.made);
	host_end(&host);
}
END_TEST

/* ---- Connections ------------------------------------------------------------- */

static int connects(struct host *host, struct cow_broker **ret)
{
	struct cow_broker_options o = { .size = sizeof(o),
		                        .address = host->address };

	return cow_broker_open(&o, ret);
}

static void is_another(void *arg)
{
	ck_assert_int_eq(setuid(65534), 0);
	cow_broker_unref(host_connect(arg));
}

struct one_more {
	struct host *host;
	struct cow_broker *b;
};

static bool has_one_more(void *arg)
{
	struct one_more *m = arg;

	return connects(m->host, &m->b) == 0;
}

/* With 64 descriptors there are 16 clients; one user may have half of them. */
START_TEST(one_user_leaves_connections_for_others)
{
	struct cow_broker *b[16], *none = NULL;
	struct host host;
	struct one_more m = { .host = &host };
	int n = 0;

	host_start(&host, "few");
	while (n < 16 && connects(&host, &b[n]) == 0)
		n++;
	ck_assert_int_eq(n, 8);
	fails(-ENOSPC, connects(&host, &none));
	ck_assert_ptr_null(none);
	if (geteuid() == 0)
		in_child(is_another, &host);
	/* Those it has are served, and what it gives up it may have again. */
	ck_assert_int_eq(host_objects(b[0]), 0);
	cow_broker_unref(b[--n]);
	ck_assert(wait_until(has_one_more, &m, 20));
	fails(-ENOSPC, connects(&host, &none));
	cow_broker_unref(m.b);
	while (n > 0)
		cow_broker_unref(b[--n]);
	host_end(&host);
}
END_TEST

/* The connection of a user, or -1: it was refused. */
static int connection_of(struct host *host, uid_t uid)
{
	struct cow_broker_message m = { .magic = COW_BROKER_MAGIC,
		                        .version = COW_BROKER_VERSION,
		                        .operation = COW_BROKER_HELLO };
	int fd;

	ck_assert_int_eq(seteuid(uid), 0);
	fd = host_dial(host);
	ck_assert_int_eq(seteuid(0), 0);
	(void)send(fd, &m, sizeof(m), MSG_NOSIGNAL);
	ck_assert_int_eq(recv(fd, &m, sizeof(m), 0), sizeof(m));
	if (m.result == 0)
		return fd;
	ck_assert_int_eq(m.result, -ENOSPC);
	close(fd);
	return -1;
}

/* One person may have 65536 user ids. Of 16 connections two are left for the user of the
 * broker, and for root. */
START_TEST(many_users_leave_connections_for_the_brokers_own)
{
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	struct cow_broker_item item = host_item("mine", COW_SHARE_SEALED);
	struct cow_broker *b;
	struct host host;
	int fds[32];
	size_t n = 0;

	if (geteuid() != 0)
		return;
	host_start(&host, "few");
	while (n < COUNT(fds) && (fds[n] = connection_of(&host, 3000000 + n)) >= 0)
		n++;
	ck_assert_uint_eq(n, 14);
	b = host_connect(&host);
	ok(cow_broker_put(b, s, &item));
	ck_assert_int_eq(host_objects(b), 1);
	cow_broker_unref(b);
	cow_storage_unref(s);
	while (n > 0)
		close(fds[--n]);
	host_end(&host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker, and others");
	TCase *tcase = add_case(suite, "others");

	tcase_add_test(tcase, list_tells_a_connection_its_own_tokens);
	tcase_add_test(tcase, tokens_are_random);
	tcase_add_test(tcase, one_user_leaves_connections_for_others);
	tcase_add_test(tcase, many_users_leave_connections_for_the_brokers_own);
	return run_suite(suite);
}
