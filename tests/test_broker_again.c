/* SPDX-License-Identifier: MIT */
/*
 * What is put at a broker again: by its holders, or after the broker was restarted
 */
#include "tests/support/broker.h"

#include <string.h>
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

int main(void)
{
	Suite *suite = suite_create("broker, again");
	TCase *tcase = add_case(suite, "again");

	tcase_add_loop_test(tcase, put_again_with_other_permissions, 0, 2);
	tcase_add_loop_test(tcase, put_again_as_something_else, 0, 3);
	return run_suite(suite);
}
