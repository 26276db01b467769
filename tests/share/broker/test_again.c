/* SPDX-License-Identifier: MIT */
/*
 * Storages that are put to a broker again: by their holders, or after its restart
 */
#include "tests/support/broker.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- By its holders ------------------------------------------------------------- */

struct other {
	struct host *host;
	struct cow_broker_item item;
	uint32_t uid; /* 0: ours */
	int expected;
};

static uint32_t permissions_of(struct cow_broker *b, const struct cow_broker_item *item)
{
	struct cow_broker_item got;
	struct cow_storage *s;

	ok(cow_broker_get(b, item, &s, &got));
	cow_storage_unref(s);
	return got.permissions;
}

static void gets_it(void *arg)
{
	const struct other *o = arg;
	struct cow_broker *b;
	struct cow_storage *s;
	int r;

	if (o->uid)
		ck_assert_int_eq(setuid(o->uid), 0);
	b = host_connect(o->host);
	r = cow_broker_get(b, &o->item, &s, NULL);
	ck_assert_int_eq(r, o->expected);
	if (r == 0)
		cow_storage_unref(s);
	cow_broker_unref(b);
}

/* A holder of it, too. */
static void puts_it_again(void *arg)
{
	struct other *o = arg;
	struct cow_broker *b = host_connect(o->host);
	struct cow_storage *s;

	ok(cow_broker_get(b, &o->item, &s, NULL));
	ok(cow_broker_put(b, s, &o->item));
	ck_assert_uint_eq(permissions_of(b, &o->item), o->item.permissions);
	cow_storage_unref(s);
	cow_broker_unref(b);
}

static void others_get(struct other *o, int expected)
{
	if (geteuid() != 0)
		return;
	o->uid = 65534;
	o->expected = expected;
	in_child(gets_it, o);
}

/* _i: a name that goes with its holders, or a token. */
START_TEST(put_again_with_other_permissions)
{
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	struct other o = { 0 };
	struct host host;
	struct cow_broker *b;

	host_start(&host, "others");
	o.host = &host;
	b = host_connect(&host);
	o.item = host_item(_i ? "" : "fleeting", COW_SHARE_SEALED);
	o.item.flags = _i ? 0 : COW_BROKER_EPHEMERAL;
	ok(cow_broker_put(b, s, &o.item));
	others_get(&o, -EACCES);
	o.item.permissions = 0644;
	ok(cow_broker_put(b, s, &o.item));
	ck_assert_uint_eq(permissions_of(b, &o.item), 0644);
	others_get(&o, 0);
	o.item.permissions = 0600;
	in_child(puts_it_again, &o);
	ck_assert_uint_eq(permissions_of(b, &o.item), 0600);
	others_get(&o, -EACCES);
	cow_storage_unref(s);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

/* Something else than what is there. */
START_TEST(put_again_as_something_else)
{
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	struct cow_broker_item item = host_item("name", COW_SHARE_SEALED), other;
	struct host host;
	struct cow_broker *b;

	host_start(&host, NULL);
	b = host_connect(&host);
	item.flags = COW_BROKER_EPHEMERAL;
	ok(cow_broker_put(b, s, &item));
	other = item;
	other.permissions = 0644;
	switch (_i) {
	case 0: other.flags = 0; break; /* it would have to last */
	case 1: other.flags |= COW_BROKER_ONCE; break;
	default: other.mode = COW_SHARE_ALIAS; break;
	}
	fails(-EEXIST, cow_broker_put(b, s, &other));
	ck_assert_uint_eq(permissions_of(b, &item), 0600);
	cow_storage_unref(s);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

/* ---- After a restart ------------------------------------------------------------- */

/* Meanwhile another puts something else there. _i: what lasts, what does not, a
 * token. */
START_TEST(what_others_took_meanwhile)
{
	struct cow_storage *s = new_filled(PAGE, 0, 1), *t = new_filled(PAGE, 0, 2), *r;
	struct cow_broker_item item = host_item(_i < 2 ? "name" : "", COW_SHARE_SEALED);
	struct cow_broker_item more[2] = { host_item("before", COW_SHARE_SEALED),
		                           host_item("behind", COW_SHARE_SEALED) };
	struct cow_broker *mine, *other;
	struct host host;

	host_start(&host, NULL);
	mine = host_connect(&host);
	item.flags = _i == 1 ? COW_BROKER_EPHEMERAL : 0;
	ok(cow_broker_put(mine, s, &more[0]));
	ok(cow_broker_put(mine, s, &item));
	ok(cow_broker_put(mine, s, &more[1]));
	host_kill(&host);
	host_again(&host, NULL);
	other = host_connect(&host);
	ok(cow_broker_put(other, t, &item));
	for (int i = 0; i < 2; i++)
		fails(-EEXIST, cow_broker_refresh(mine));
	for (int i = 0; i < 2; i++) {
		ok(cow_broker_get(other, &more[i], &r, NULL));
		cow_storage_unref(r);
	}
	ok(cow_broker_get(mine, &item, &r, NULL));
	ck_pattern(data(r), PAGE, 2);
	cow_storage_unref(r);
	ok(cow_broker_drop(other, &item));
	ok(cow_broker_refresh(mine));
	ok(cow_broker_get(other, &item, &r, NULL));
	ck_pattern(data(r), PAGE, 1);
	cow_storage_unref(r);
	cow_storage_unref(s);
	cow_storage_unref(t);
	cow_broker_unref(mine);
	cow_broker_unref(other);
	host_end(&host);
}
END_TEST

static void close_connections(void)
{
	for (int fd = 3; fd < 1024; fd++) {
		socklen_t bytes = sizeof(int);
		int type = 0;

		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 &&
		    type == SOCK_SEQPACKET)
			close(fd);
	}
}

/* Only the connection was lost: what is there is its own. */
START_TEST(what_was_not_lost)
{
	struct cow_storage *s = new_filled(PAGE, 0, 1), *none = new_storage(0, 0), *r;
	struct cow_broker_item items[4] = { host_item("lasts", COW_SHARE_SEALED),
		                            host_item("goes", COW_SHARE_CLONE),
		                            host_item("", COW_SHARE_SEALED),
		                            host_item("none", COW_SHARE_SEALED) };
	struct host host;
	struct cow_broker *b;

	host_start(&host, NULL);
	b = host_connect(&host);
	items[1].flags = COW_BROKER_EPHEMERAL;
	for (int i = 0; i < 4; i++)
		ok(cow_broker_put(b, i < 3 ? s : none, &items[i]));
	close_connections();
	ok(cow_broker_refresh(b));
	for (int i = 0; i < 4; i++) {
		ok(cow_broker_get(b, &items[i], &r, NULL));
		cow_storage_unref(r);
	}
	fails(-EEXIST, cow_broker_put(b, s, &items[0]));
	cow_storage_unref(s);
	cow_storage_unref(none);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

/* _i: what lasts, what does not. The broker keeps it, but after a restart it is gone. */
START_TEST(what_was_released)
{
	struct cow_storage *s = new_filled(PAGE, 0, 1), *r;
	struct cow_broker_item item = host_item("name", COW_SHARE_SEALED);
	struct host host;
	struct cow_broker *b;

	host_start(&host, NULL);
	b = host_connect(&host);
	item.flags = _i == 1 ? COW_BROKER_EPHEMERAL : 0;
	fails(-ENOENT, cow_broker_release(b, &item));
	ok(cow_broker_put(b, s, &item));
	ok(cow_broker_release(b, &item));
	fails(-ENOENT, cow_broker_release(b, &item));
	cow_storage_unref(s);
	ok(cow_broker_refresh(b));
	ok(cow_broker_get(b, &item, &r, NULL));
	ck_pattern(data(r), PAGE, 1);
	cow_storage_unref(r);
	host_kill(&host);
	host_again(&host, NULL);
	ok(cow_broker_refresh(b));
	fails(-ENOENT, cow_broker_get(b, &item, &r, NULL));
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

struct loser {
	struct host *host;
	struct gate put, taken;
};

static void takes_it(void *arg)
{
	const struct loser *t = arg;
	struct cow_broker_item item = host_item("name", COW_SHARE_SEALED);
	struct cow_storage *s = new_filled(PAGE, 0, 2);
	struct cow_broker *b;

	ck_assert_int_eq(setuid(65534), 0);
	b = host_connect(t->host);
	ok(cow_broker_put(b, s, &item));
	cow_storage_unref(s);
	cow_broker_unref(b);
}

static void loses_it(void *arg)
{
	struct loser *t = arg;
	struct cow_broker_item item = host_item("name", COW_SHARE_SEALED);
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	struct cow_broker *b;

	ck_assert_int_eq(setuid(65533), 0);
	b = host_connect(t->host);
	ok(cow_broker_put(b, s, &item));
	gate_open(&t->put);
	gate_wait(&t->taken);
	fails(-EEXIST, cow_broker_refresh(b));
	fails(-EACCES, cow_broker_drop(b, &item));
	ok(cow_broker_refresh(b));
	cow_storage_unref(s);
	cow_broker_unref(b);
}

/* A client that drops a name which another user took gets no error for it later. */
START_TEST(what_another_user_took_can_be_given_up)
{
	struct host host;
	struct loser t = { .host = &host };
	pid_t child;

	host_start(&host, "--others");
	must(chmod(host.folder, 0755) == 0);
	gate_make(&t.put);
	gate_make(&t.taken);
	child = child_start(loses_it, &t);
	gate_wait(&t.put);
	host_kill(&host);
	host_again(&host, "--others");
	in_child(takes_it, &t);
	gate_open(&t.taken);
	child_finish(child);
	gate_free(&t.put);
	gate_free(&t.taken);
	host_end(&host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker, again");
	TCase *tcase = add_case(suite, "again");

	tcase_add_loop_test(tcase, put_again_with_other_permissions, 0, 2);
	tcase_add_loop_test(tcase, put_again_as_something_else, 0, 3);
	tcase_add_loop_test(tcase, what_others_took_meanwhile, 0, 3);
	tcase_add_test(tcase, what_was_not_lost);
	tcase_add_loop_test(tcase, what_was_released, 0, 2);
	if (geteuid() == 0)
		tcase_add_test(tcase, what_another_user_took_can_be_given_up);
	return run_suite(suite);
}
