/* SPDX-License-Identifier: MIT */
/*
 * References to a connection to a broker: what was put under a token lives until the last one
 */
#include "tests/support/broker.h"

static int items_at(struct host *host)
{
	struct cow_broker *b = host_connect(host);
	int n = host_objects(b);

	cow_broker_unref(b);
	return n;
}

static bool has_one_item(void *arg)
{
	return items_at(arg) == 1;
}

struct wanted {
	struct host *host;
	struct cow_broker_item item;
};

static void gets_it(void *arg)
{
	struct wanted *w = arg;
	struct cow_broker *b = host_connect(w->host);
	struct cow_storage *s;

	ok(cow_broker_get(b, &w->item, &s, NULL));
	ck_pattern(data(s), PAGE, 4);
	cow_storage_unref(s);
	cow_broker_unref(b);
}

static void gets_none(void *arg)
{
	struct wanted *w = arg;
	struct cow_broker *b = host_connect(w->host);
	struct cow_storage *s;

	fails(-ENOENT, cow_broker_get(b, &w->item, &s, NULL));
	cow_broker_unref(b);
}

START_TEST(two_references)
{
	struct cow_broker_item named = host_item("named", COW_SHARE_SEALED);
	struct cow_broker_item token = host_item("", COW_SHARE_SEALED);
	struct cow_storage *s = new_filled(PAGE, 0, 4);
	struct wanted w;
	struct cow_broker *b;
	struct host host;

	host_start(&host, NULL);
	b = host_connect(&host);
	ck_assert_ptr_eq(cow_broker_ref(b), b);
	ck_assert_ptr_null(cow_broker_ref(NULL));
	ok(cow_broker_put(b, s, &named));
	ok(cow_broker_put(b, s, &token));
	ck_assert_int_eq(items_at(&host), 2);
	ck_assert_ptr_null(cow_broker_unref(b));
	w = (struct wanted){ &host, token };
	in_child(gets_it, &w);
	ck_assert_int_eq(items_at(&host), 2);
	ck_assert_ptr_null(cow_broker_unref(b));
	/* The broker sees the end of the connection when it comes to it. */
	must(wait_until(has_one_item, &host, 30));
	in_child(gets_none, &w);
	w.item = named;
	in_child(gets_it, &w);
	cow_storage_unref(s);
	host_end(&host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker, references");
	TCase *tcase = add_case(suite, "references");

	tcase_add_test(tcase, two_references);
	return run_suite(suite);
}
