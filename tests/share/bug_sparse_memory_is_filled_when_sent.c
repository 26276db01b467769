/* SPDX-License-Identifier: MIT */
/*
 * A sparse storage that is sent, exported or shared in place
 *
 * The copy for other processes had a page for each page that was never touched, and the
 * source got one, too, because the copy read it.
 */
#include "tests/support/ends.h"

#define BYTES (256 * MIB)
#define AT (BYTES / 2 + 77)
#define MOST (40 * MIB) /* huge pages around what is touched, and what is made ahead */

static struct cow_storage *new_sparse(uint32_t flags)
{
	struct cow_storage *s = new_storage(BYTES, flags);

	mut_range(s, AT, 1, COW_WRITE_SPARSE)[AT] = 5;
	return s;
}

static void still_sparse(const struct cow_storage *s, uint64_t before)
{
	ck_assert_uint_eq(data(s)[AT], 5);
	if (memory_held() > before + MOST)
		ck_abort_msg("%llu MiB of untouched memory were filled",
		             (unsigned long long)((memory_held() - before) / MIB));
}

/* _i / 3: with a group; _i % 3: the mode. */
START_TEST(sent)
{
	uint64_t before = memory_held();
	struct cow_storage *s = new_sparse(0), *got;
	struct cow_channel *c;
	struct ends e;

	ends_make(&e, SOCK_SEQPACKET, _i / 3);
	c = child_channel(&e);
	send_one(e.mine, s, modes[_i % 3]);
	got = receive_one(c);
	still_sparse(s, before);
	still_sparse(got, before);
	cow_storage_unref(s);
	cow_storage_unref(got);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* What lies in a group's memory is copied like any other storage. */
START_TEST(of_a_group)
{
	uint64_t before = memory_held();
	struct cow_storage *s, *b;
	struct cow_group *g;

	ok(cow_group_new(&g));
	ok(cow_group_storage_new(g, BYTES, _i ? COW_SHARE_CLONE : COW_SHARE_ALIAS, &s));
	mut(s)[AT] = 5;
	ok(cow_storage_clone(s, &b));
	still_sparse(b, before);
	if (_i) {
		ok(cow_storage_resize(s, BYTES - PAGE));
		still_sparse(s, before);
	}
	cow_storage_unref(s);
	cow_storage_unref(b);
	cow_group_unref(g);
}
END_TEST

START_TEST(shared_in_place)
{
	uint64_t before = memory_held();
	struct cow_storage *s = new_sparse(COW_STORAGE_TRANSPARENT);

	ok(cow_storage_share_in_place(s));
	still_sparse(s, before);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_sparse_memory_is_filled_when_sent");
	TCase *all = add_case(suite, "sparse");

	tcase_add_loop_test(all, sent, 0, 6);
	tcase_add_loop_test(all, of_a_group, 0, 2);
	tcase_add_test(all, shared_in_place);
	return run_suite(suite);
}
