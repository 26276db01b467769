/* SPDX-License-Identifier: MIT */
/*
 * Clones of memory that the program unmapped or protected crashed
 *
 * A storage is found by an address, or an address is taken from it. Then a part of its
 * memory goes away. What has to read all of it fails. Nothing else is lost, and once the
 * part is there again, the same call succeeds.
 */
#include "tests/support/folder.h"
#include "tests/support/harm.h"

static void ck_clone(struct cow_storage *clone, const struct block *b)
{
	memset(b->p, 0, b->z->bytes);
	ck_all(data(clone), b->z);
	cow_storage_unref(clone);
	fill_all(b->p, b->z);
}

START_TEST(it_is_not_cloned)
{
	struct block b = block_harmed(_i);
	struct cow_storage *clone = NULL, *two[2] = { b.s, b.s };
	struct cow_storage *clones[2];
	uint64_t copied = 1;

	fails(-EFAULT, cow_storage_clone(b.s, &clone));
	fails(-EFAULT, cow_storage_lazy_clone(b.s, &clone));
	fails(-EFAULT, cow_storages_lazy_clone(two, 2, &copied, clones));
	ck_assert_ptr_null(clone);
	ck_assert_uint_eq(copied, 1);
	ck_around(b.p, b.z);
	mend(b.p + b.z->at, b.harm);
	ok(cow_storage_clone(b.s, &clone));
	ck_clone(clone, &b);
	ok(cow_storage_lazy_clone(b.s, &clone));
	ck_clone(clone, &b);
	block_end(&b);
}
END_TEST

/* Its user may take such a block for memory from elsewhere. */
START_TEST(as_external_memory_it_is_not_cloned)
{
	struct block b = block_harmed(_i);
	struct cow_data_ptr ptr = { .data = b.p };
	struct cow_storage *external, *clone = NULL;

	ok(cow_storage_new_external(&ptr, b.z->bytes, NULL, &external));
	fails(-EFAULT, cow_storage_clone(external, &clone));
	fails(-EFAULT, cow_storage_lazy_clone(external, &clone));
	ck_around(b.p, b.z);
	mend(b.p + b.z->at, b.harm);
	ok(cow_storage_lazy_clone(external, &clone));
	ck_clone(clone, &b);
	cow_storage_unref(external);
	block_end(&b);
}
END_TEST

START_TEST(its_storage_is_not_written)
{
	struct cow_storage *clone;
	struct block b = tracked_harmed(_i, &clone);
	void *to = NULL;

	fails(-EFAULT, cow_storage_data_mut(clone, &to));
	fails(-EFAULT, cow_storage_data_mut_range(clone, 0, 1, COW_WRITE_BY_COPY, &to));
	fails(-EFAULT, cow_storage_data_mut_range(clone, 0, PAGE, COW_WRITE_ALL, &to));
	fails(-EFAULT, cow_storage_resize(clone, b.z->bytes + 1));
	ck_assert_ptr_null(to);
	ck_assert_uint_eq(cow_storage_bytes(clone), b.z->bytes);
	ck_assert_ptr_eq(data(clone), b.p);
	ck_around(b.p, b.z);
	mend(b.p + b.z->at, b.harm);
	memset(mut(clone), 0, b.z->bytes);
	ck_all(b.p, b.z);
	cow_storage_unref(clone);
	tracked_end(&b);
}
END_TEST

/* A write of what is gone reads only the rest. */
START_TEST(what_is_overwritten_need_not_be_there)
{
	struct cow_storage *clone;
	struct block b = tracked_harmed(_i, &clone);
	unsigned char *to;

	to = mut_range(clone, b.z->at, PAGE, COW_WRITE_ALL);
	page_fill(to + b.z->at);
	ck_all(to, b.z);
	ck_around(b.p, b.z);
	cow_storage_unref(clone);
	tracked_end(&b);
}
END_TEST

START_TEST(it_is_not_saved)
{
	struct block b = block_harmed(_i);
	uint64_t done = 1;

	enter();
	fails(-EFAULT, cow_storage_save(b.s, in_folder("a"), 0, COW_SAVE_ATOMIC, &done));
	ck_assert_int_eq(entries(folder, ""), 0);
	ck_around(b.p, b.z);
	mend(b.p + b.z->at, b.harm);
	ok(cow_storage_save(b.s, in_folder("a"), 0, COW_SAVE_ATOMIC, &done));
	ck_assert_uint_eq(done, b.z->bytes);
	ck_file(in_folder("a"), 0, b.z->at, 1);
	leave();
	block_end(&b);
}
END_TEST

static int copy_elements(void *user, void *to, const void *from, size_t n)
{
	(void)user;
	memcpy(to, from, n);
	return 0;
}

START_TEST(its_elements_are_not_cloned)
{
	const struct cow_element_hooks hooks = { .size = sizeof(hooks),
		                                 .element_bytes = 1,
		                                 .copy = copy_elements };
	const struct cow_storage_options options = { .size = sizeof(options),
		                                     .elements = &hooks };
	struct block b = { .z = &block_sizes[_i % SIZES], .harm = _i / SIZES };
	struct cow_storage *clone = NULL;

	ok(cow_storage_new(b.z->bytes, &options, &b.s));
	b.p = mut(b.s);
	fill_all(b.p, b.z);
	harms[b.harm](b.p + b.z->at);
	fails(-EFAULT, cow_storage_clone(b.s, &clone));
	fails(-EFAULT, cow_storage_lazy_clone(b.s, &clone));
	ck_around(b.p, b.z);
	mend(b.p + b.z->at, b.harm);
	ok(cow_storage_lazy_clone(b.s, &clone));
	ck_clone(clone, &b);
	tracked_end(&b);
}
END_TEST

/* What a program may read is cloned, whatever else it did. */
START_TEST(read_only_memory_is_cloned)
{
	struct block b = { .z = &block_sizes[_i] };
	struct cow_storage *clone;

	b.p = new_block(b.z->bytes, 0);
	fill_all(b.p, b.z);
	ok(cow_storage_from_ptr(b.p, NULL, &b.s));
	ok(cow__protect((uintptr_t)b.p, b.z->at, PROT_READ, -1));
	ok(cow__overmap((uintptr_t)b.p + b.z->at, PAGE, 0, map_anew, b.p + b.z->at));
	page_fill(b.p + b.z->at);
	ok(cow_storage_lazy_clone(b.s, &clone));
	ok(cow__protect((uintptr_t)b.p, b.z->at, PROT_READ | PROT_WRITE, -1));
	ck_clone(clone, &b);
	block_end(&b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_clone_of_unmapped_memory_crashes");
	TCase *tcase = add_case(suite, "bug_clone_of_unmapped_memory_crashes");

	tcase_add_loop_test(tcase, it_is_not_cloned, 0, SIZES * HARMS);
	tcase_add_loop_test(tcase, as_external_memory_it_is_not_cloned, 0, SIZES * HARMS);
	tcase_add_loop_test(tcase, its_storage_is_not_written, 0, SIZES * HARMS);
	tcase_add_loop_test(tcase, what_is_overwritten_need_not_be_there, 0, SIZES * HARMS);
	tcase_add_loop_test(tcase, it_is_not_saved, 0, SIZES * HARMS);
	tcase_add_loop_test(tcase, its_elements_are_not_cloned, 0, SIZES * HARMS);
	tcase_add_loop_test(tcase, read_only_memory_is_cloned, 0, SIZES);
	return run_suite(suite);
}
