/* SPDX-License-Identifier: MIT */
/*
 * Which storages are the same one
 *
 * An alias is one storage in a process, however often it comes and whoever made it. What
 * arrives as a clone or sealed belongs to the caller that received it: a write through one
 * handle is seen through no other.
 */
#include "tests/support/ends.h"

#define BYTES (64 * KIB)

/* Both ends of the socket in this process. */
struct here {
	struct ends ends;
	struct cow_channel *other;
};

static void here_make(struct here *h, bool grouped)
{
	ends_make(&h->ends, SOCK_SEQPACKET, grouped);
	h->other = child_channel(&h->ends);
}

static void here_free(struct here *h)
{
	cow_channel_free(h->other);
	ends_free(&h->ends);
}

static void through(struct here *h, struct cow_storage *s, enum cow_share_mode mode,
                    struct cow_storage **ret)
{
	send_one(h->ends.mine, s, mode);
	*ret = receive_one(h->other);
}

static void apart(struct cow_storage *a, struct cow_storage *b)
{
	ck_assert_ptr_ne(a, b);
	fill(mut(a), BYTES, 2);
	ck_pattern(data(b), BYTES, 1);
	fill(mut(b), BYTES, 3);
	ck_pattern(data(a), BYTES, 2);
}

/* _i & 1: in a group; _i & 2: as a clone. */
START_TEST(what_came_twice_is_apart)
{
	enum cow_share_mode mode = _i & 2 ? COW_SHARE_CLONE : COW_SHARE_SEALED;
	struct cow_storage *s = new_filled(BYTES, 0, 1), *a, *b, *c;
	struct here h;

	here_make(&h, _i & 1);
	through(&h, s, mode, &a);
	through(&h, s, mode, &b);
	through(&h, s, mode, &c);
	apart(a, b);
	ck_pattern(data(c), BYTES, 1);
	ck_pattern(data(s), BYTES, 1);
	ok(cow_storage_resize(c, BYTES / 2));
	fill(expose(s), BYTES, 4);
	ck_pattern(data(c), BYTES / 2, 1);
	cow_storage_unref(s);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(c);
	here_free(&h);
}
END_TEST

START_TEST(what_was_imported_twice_is_apart)
{
	struct cow_storage *s = new_filled(BYTES, 0, 1), *a, *b;
	uint64_t offset;
	int fd;

	ok(cow_storage_export(s, COW_SHARE_SEALED, &fd, &offset));
	ok(cow_storage_import(fd, offset, BYTES, COW_SHARE_SEALED, &a));
	ok(cow_storage_import(fd, offset, BYTES, COW_SHARE_SEALED, &b));
	close(fd);
	apart(a, b);
	ck_pattern(data(s), BYTES, 1);
	cow_storage_unref(s);
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

static void same(struct cow_storage *made, struct cow_storage *got)
{
	ck_assert_ptr_eq(got, made);
	ck_assert_uint_eq(cow_storage_use_count(made), 2);
	cow_storage_unref(got);
}

/* _i & 1: in a group; _i & 2: born in its memory. */
START_TEST(an_alias_comes_back_to_its_owner)
{
	struct cow_storage *s, *got;
	struct here h;

	here_make(&h, _i & 1);
	if (_i == 3)
		ok(cow_group_storage_new(h.ends.group, BYTES, COW_SHARE_ALIAS, &s));
	else
		s = new_filled(BYTES, 0, 1);
	for (int i = 0; i < 2; i++) {
		through(&h, s, COW_SHARE_ALIAS, &got);
		same(s, got);
	}
	cow_storage_unref(s);
	here_free(&h);
}
END_TEST

/* The process that made it has it no more: there are no two either. */
START_TEST(an_alias_outlives_its_owner)
{
	struct cow_storage *s = new_filled(BYTES, 0, 1), *a, *b;
	struct here h;

	here_make(&h, _i & 1);
	send_one(h.ends.mine, s, COW_SHARE_ALIAS);
	send_one(h.ends.mine, s, COW_SHARE_ALIAS);
	cow_storage_unref(s);
	a = receive_one(h.other);
	b = receive_one(h.other);
	same(a, b);
	ck_pattern(data(a), BYTES, 1);
	cow_storage_unref(a);
	here_free(&h);
}
END_TEST

/* _i & 1: of a block; _i & 2: as a descriptor. */
START_TEST(an_alias_in_place_comes_back)
{
	struct cow_storage *s, *got;
	unsigned char *block = NULL;
	uint64_t offset;
	struct here h;
	int fd;

	here_make(&h, false);
	if (_i & 1) {
		block = new_block(BYTES, 0);
		ok(cow_storage_from_ptr(block, NULL, &s));
	} else {
		s = new_storage(BYTES, COW_STORAGE_TRANSPARENT);
	}
	ok(cow_storage_share_in_place(s));
	if (_i & 2) {
		ok(cow_storage_export(s, COW_SHARE_ALIAS, &fd, &offset));
		ok(cow_storage_import(fd, offset, BYTES, COW_SHARE_ALIAS, &got));
		close(fd);
	} else {
		through(&h, s, COW_SHARE_ALIAS, &got);
	}
	same(s, got);
	cow_storage_unref(s);
	cow_block_free(block);
	here_free(&h);
}
END_TEST

/* Its bytes were swapped for others: what comes is what was sent. */
START_TEST(a_swapped_alias_is_another_storage)
{
	struct cow_storage *s = new_filled(BYTES, 0, 1), *got;
	static unsigned char bytes[BYTES];
	struct cow_data_ptr p = { .data = bytes };
	struct here h;

	here_make(&h, false);
	send_one(h.ends.mine, s, COW_SHARE_ALIAS);
	ok(cow_storage_swap_data_ptr(s, &p, BYTES));
	got = receive_one(h.other);
	ck_assert_ptr_ne(got, s);
	ck_pattern(data(got), BYTES, 1);
	cow_data_ptr_clear(&p);
	cow_storage_unref(s);
	cow_storage_unref(got);
	here_free(&h);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("same");
	TCase *all = add_case(suite, "same");

	tcase_add_loop_test(all, what_came_twice_is_apart, 0, 4);
	tcase_add_test(all, what_was_imported_twice_is_apart);
	tcase_add_loop_test(all, an_alias_comes_back_to_its_owner, 0, 4);
	tcase_add_loop_test(all, an_alias_outlives_its_owner, 0, 2);
	tcase_add_loop_test(all, an_alias_in_place_comes_back, 0, 4);
	tcase_add_test(all, a_swapped_alias_is_another_storage);
	return run_suite(suite);
}
