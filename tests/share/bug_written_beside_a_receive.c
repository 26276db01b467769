/* SPDX-License-Identifier: MIT */
/*
 * A storage that is written while another thread receives the same bytes once more
 *
 * The writer saw one reference, then asked whether any other process has the bytes. In
 * between the message became a storage on the same allocation, and no other process had
 * the bytes any more. So the writer wrote in place what the new storage shows. For that
 * reason home_alone() looks at the references again, under the lock that stops new ones.
 */
#include "core/storage/storage.h"
#include "tests/support/ends.h"

enum { BYTES = 64 * 1024 };

START_TEST(it_is_not_alone)
{
	struct cow__writing w = { BYTES, 0, BYTES, COW_WRITE_AUTO };
	struct cow__allocation *a;
	struct cow_storage *s, *r;
	struct cow_channel *c;
	struct ends e;

	ends_make(&e, SOCK_STREAM, true);
	ok(cow_channel_new(e.fd[1], e.group, 0, &c));
	ok(cow_group_storage_new(e.group, BYTES, COW_SHARE_CLONE, &s));
	fill(mut(s), BYTES, 1);
	send_one(e.mine, s, COW_SHARE_CLONE);
	r = receive_one(c);
	a = s->data;
	ck_assert_ptr_eq(r->data, a);
	/* What a writer does that had seen one reference. */
	ck_assert_int_eq(a->ops->alone(a, &w), COW__NOT_ALONE);
	cow_storage_unref(r);
	ck_assert_int_eq(a->ops->alone(a, &w), COW__ALONE);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_written_beside_a_receive");
	TCase *tcase = add_case(suite, "regress");

	tcase_add_test(tcase, it_is_not_alone);
	return run_suite(suite);
}
