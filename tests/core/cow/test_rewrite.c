/* SPDX-License-Identifier: MIT */
/*
 * Write intents: the writer gets other pages, and everybody keeps his bytes
 *
 * What an intent is for is counted: bytes copied, pages that stay shared, memory that is
 * used again. test_rewrite_random.c has random programs.
 */
#include "core/program/advise.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t intent(void *start, size_t bytes, enum cow_write_hint hint)
{
	struct cow_range range = { start, bytes };
	uint64_t copied = 77;

	ok(cow_write_intent(&range, 1, hint, &copied));
	return copied;
}

static const size_t sizes[] = {
	400 * KIB, MIB + 5, 2 * MIB, 5 * MIB + PAGE, 40 * MIB, 70 * MIB + 17,
};

/* Rewritten again and again beside a clone of each moment. No write copies a page, and the
 * pages take no more than two places. */
START_TEST(again_and_again)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 1), *b;
	unsigned char *p = expose(a);

	for (unsigned i = 1; i < 8; i++) {
		b = lazy(a);
		ck_assert_uint_eq(info_of(a).frozen, 1);
		ck_assert(cow_is_frozen());
		ck_assert_uint_eq(intent(p, bytes, COW_WRITE_AUTO),
		                  (bytes + PAGE - 1) / PAGE * PAGE);
		ck_assert_ptr_eq(data(a), p);
		ck_pattern(p, bytes, i);
		fill(p, bytes, i + 1);
		ck_assert_uint_eq(info_of(a).frozen, 0);
		ck_pattern(data(b), bytes, i);
		cow_storage_unref(b);
		ck_assert(!cow_is_frozen());
		ck_assert_uint_le(memfd_bytes(), 2 * (bytes + 4 * MIB) + 8 * MIB);
	}
	/* Nobody has cloned it since. */
	ck_assert_uint_eq(intent(p, bytes, COW_WRITE_AUTO), 0);
	ck_pattern(p, bytes, 8);
	cow_storage_unref(a);
}
END_TEST

/* With ALL nothing is copied, and a clone keeps its bytes. */
START_TEST(without_a_copy)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 1), *b;
	unsigned char *p = expose(a);

	for (unsigned i = 1; i < 5; i++) {
		b = lazy(a);
		ck_assert_uint_eq(intent(p, bytes, COW_WRITE_ALL), 0);
		fill(p, bytes, i + 1);
		ck_assert_uint_eq(info_of(a).frozen, 0);
		ck_pattern(data(b), bytes, i);
		cow_storage_unref(b);
		ck_pattern(p, bytes, i + 1);
	}
	cow_storage_unref(a);
}
END_TEST

/* The clone is gone: the pages are written in place again, and what was copied meanwhile
 * comes home. */
START_TEST(nobody_reads_it)
{
	struct cow_storage *a = new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 1), *b;
	unsigned char *p = expose(a), *want = malloc(8 * MIB);

	fill(want, 8 * MIB, 1);
	for (int all = 0; all < 2; all++) {
		b = lazy(a);
		memset(p + 3 * MIB, 5, 3 * MIB);
		memset(want + 3 * MIB, 5, 3 * MIB);
		cow_storage_unref(b);
		ck_assert_uint_eq(info_of(a).frozen, 1);
		ck_assert_uint_eq(intent(p, 8 * MIB, all ? COW_WRITE_ALL : COW_WRITE_AUTO),
		                  0);
		ck_assert_uint_eq(info_of(a).frozen, 0);
		if (!all)
			must(memcmp(p, want, 8 * MIB) == 0);
	}
	free(want);
	cow_storage_unref(a);
}
END_TEST

/* A part: whole chunks get other pages, the rest stays as it is. */
START_TEST(a_part)
{
	struct cow_storage *a = new_filled(12 * MIB, COW_STORAGE_TRANSPARENT, 1), *b = lazy(a);
	unsigned char *p = expose(a), *want = malloc(12 * MIB);

	fill(want, 12 * MIB, 1);
	ck_assert_uint_eq(intent(p + 3 * MIB, 6 * MIB, COW_WRITE_AUTO), 4 * MIB);
	must(memcmp(p, want, 12 * MIB) == 0);
	memset(p + MIB, 9, 8 * MIB);
	ck_pattern(data(b), 12 * MIB, 1);
	memset(want + MIB, 9, 8 * MIB);
	/* Too little for a chunk. */
	ck_assert_uint_eq(intent(p + 100, 2 * MIB, COW_WRITE_AUTO), 0);
	ck_assert_uint_eq(intent(p, 12 * MIB, COW_WRITE_AUTO), 8 * MIB);
	must(memcmp(p, want, 12 * MIB) == 0);
	memset(p, 3, 12 * MIB);
	ck_pattern(data(b), 12 * MIB, 1);
	cow_storage_unref(b);
	free(want);
	cow_storage_unref(a);
}
END_TEST

/* An exposed clone has no pages of its own. */
START_TEST(a_view)
{
	struct cow_storage *a = new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 1), *b = lazy(a);
	unsigned char *q = expose(b);

	ck_assert_uint_eq(intent(q, 8 * MIB, COW_WRITE_AUTO), 8 * MIB);
	fill(q, 8 * MIB, 2);
	ck_pattern(data(a), 8 * MIB, 1);
	cow_storage_unref(a);
	ck_pattern(q, 8 * MIB, 2);
	cow_storage_unref(b);
}
END_TEST

static struct gate to_child;

static void child_sees(void *arg)
{
	unsigned char *p = arg;

	gate_wait(&to_child);
	ck_pattern(p, 8 * MIB, 1);
	(void)intent(p, 8 * MIB, COW_WRITE_AUTO);
	ck_pattern(p, 8 * MIB, 1);
	fill(p, 8 * MIB, 7);
	ck_pattern(p, 8 * MIB, 7);
}

/* A living child reads the old pages, and so does its own intent. */
START_TEST(beside_a_child)
{
	struct cow_storage *a = new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 1), *b;
	struct cow_storage *t[2] = { new_filled(8 * MIB, 0, 3), NULL };
	unsigned char *p = expose(a);
	pid_t child;

	for (int round = 0; round < 3; round++) {
		fill(p, 8 * MIB, 1);
		gate_make(&to_child);
		child = child_start(child_sees, p);
		ck_assert_uint_eq(intent(p, 8 * MIB, COW_WRITE_AUTO), 8 * MIB);
		ck_pattern(p, 8 * MIB, 1);
		fill(p, 8 * MIB, 2);
		/* Not into the pages that the child reads. */
		b = lazy(a);
		ck_assert_uint_eq(intent(p, 8 * MIB, COW_WRITE_AUTO), 8 * MIB);
		fill(p, 8 * MIB, 2);
		cow_storage_unref(b);
		/* Nor may these become anything: two storages share them. */
		t[1] = lazy(t[0]);
		(void)intent((void *)(uintptr_t)data(t[0]), 8 * MIB, COW_WRITE_ALL);
		ck_pattern(data(t[1]), 8 * MIB, 3);
		cow_storage_unref(t[1]);
		gate_open(&to_child);
		child_finish(child);
		ck_pattern(p, 8 * MIB, 2);
		gate_free(&to_child);
	}
	cow_storage_unref(t[0]);
	cow_storage_unref(a);
}
END_TEST

static void exits_at_once(void *arg)
{
	(void)arg;
}

static void frees_it(void *arg)
{
	gate_wait(&to_child);
	cow_storage_unref(arg);
	cow_trim();
}

/* A child has no hold on pages that nobody showed at the fork. It must not give them back
 * when its parent uses them for something else. */
START_TEST(not_the_childs)
{
	struct cow_storage *a = new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 1), *b;
	unsigned char *p = expose(a);
	pid_t child;

	in_child(exits_at_once, NULL);
	b = lazy(a);
	ck_assert_uint_eq(intent(p, 8 * MIB, COW_WRITE_AUTO), 8 * MIB);
	cow_storage_unref(b);
	gate_make(&to_child);
	child = child_start(frees_it, a);
	cow_storage_unref(a);
	/* Nowhere in a file that the child has. */
	b = new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 2);
	gate_open(&to_child);
	child_finish(child);
	ck_pattern(data(b), 8 * MIB, 2);
	cow_storage_unref(b);
	gate_free(&to_child);
}
END_TEST

/* What a program has behind the bytes that it asked for stays (cow_block_bytes()). */
START_TEST(behind_the_last_byte)
{
	const size_t bytes = 4 * MIB + 100;

	for (int gone = 0; gone < 2; gone++) {
		unsigned char *p = new_block(bytes, 0);
		struct cow_storage *s, *b;

		ok(cow_storage_from_ptr(p, NULL, &s));
		memset(p, 1, cow_block_bytes(p));
		b = lazy(s);
		p[bytes + 5] = 7;
		if (gone)
			b = cow_storage_unref(b);
		(void)intent(p, bytes, COW_WRITE_ALL);
		ck_assert_uint_eq(p[bytes + 5], 7);
		ck_assert_uint_eq(p[bytes], 1);
		cow_storage_unref(b);
		cow_storage_unref(s);
		cow_block_free(p);
	}
}
END_TEST

/* Spare memory goes back: in time, or at once with cow_trim(). */
START_TEST(spare_pages_go)
{
	struct cow_storage *a = new_filled(32 * MIB, COW_STORAGE_TRANSPARENT, 1), *b;
	unsigned char *p = expose(a);

	ok(cow_option_set("warm", "0"));
	for (unsigned i = 0; i < 4; i++) {
		b = lazy(a);
		(void)intent(p, 32 * MIB, COW_WRITE_AUTO);
		cow_storage_unref(b);
		if (i % 2)
			continue;
		cow_trim();
		ck_assert_uint_le(memfd_bytes(), 36 * MIB);
		ck_pattern(p, 32 * MIB, 1);
	}
	cow_storage_unref(a);
	cow_trim();
	ck_assert_uint_le(memfd_bytes(), 4 * MIB);
}
END_TEST

/* The own pages under a part that was replaced go as well. */
START_TEST(spare_pages_of_a_part_go)
{
	struct cow_storage *a = new_filled(32 * MIB, COW_STORAGE_TRANSPARENT, 1), *b = lazy(a);
	unsigned char *p = expose(a);

	ok(cow_option_set("warm", "0"));
	ck_assert_uint_eq(intent(p + MIB, 30 * MIB, COW_WRITE_AUTO), 28 * MIB);
	ck_assert_uint_ge(memfd_bytes(), 58 * MIB);
	cow_storage_unref(b);
	cow_trim();
	ck_assert_uint_le(memfd_bytes(), 36 * MIB);
	ck_pattern(p, 32 * MIB, 1);
	/* They are used again, and have the right bytes. */
	b = lazy(a);
	ck_assert_uint_eq(intent(p, 32 * MIB, COW_WRITE_AUTO), 32 * MIB);
	ck_pattern(p, 32 * MIB, 1);
	fill(p, 32 * MIB, 2);
	ck_pattern(data(b), 32 * MIB, 1);
	cow_storage_unref(b);
	cow_storage_unref(a);
}
END_TEST

/* A read past the page cache could be under way, and the kernel would write the old pages.
 * What can only be written does not count. */
START_TEST(under_io)
{
	struct cow_storage *a = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 1), *b = lazy(a);
	unsigned char *p = expose(a);
	char name[] = "/var/tmp/cowshed-test-XXXXXX";
	int fd = mkstemp(name), direct = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
	uint64_t pinned = stats_now().fallbacks[COW_FALLBACK_PINNED];

	must(fd >= 0 && unlink(name) == 0);
	if (direct >= 0) {
		ck_assert_uint_eq(intent(p, 4 * MIB, COW_WRITE_AUTO), 0);
		ck_assert_uint_eq(stats_now().fallbacks[COW_FALLBACK_PINNED], pinned + 1);
		ck_assert_uint_eq(info_of(a).frozen, 1);
		close(direct);
	}
	close(fd);
	ck_assert_uint_eq(intent(p, 4 * MIB, COW_WRITE_AUTO), 4 * MIB);
	ck_pattern(p, 4 * MIB, 1);
	cow_storage_unref(b);
	cow_storage_unref(a);
}
END_TEST

/* A block that the program emptied in part stays as it is. */
START_TEST(emptied_in_part)
{
	struct cow_storage *a = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 1), *b = lazy(a);
	unsigned char *p = expose(a);

	ok(cow__advise((uintptr_t)p + MIB, MIB, MADV_DONTNEED));
	ck_assert_uint_eq(intent(p, 4 * MIB, COW_WRITE_ALL), 0);
	ck_bytes(p + MIB, MIB, 0);
	ck_assert_int_eq(memcmp(p, data(b), MIB), 0);
	ck_pattern(data(b), 4 * MIB, 1);
	cow_storage_unref(b);
	cow_storage_unref(a);
}
END_TEST

static atomic_bool stop;

static void *reads(void *arg)
{
	const unsigned char *p = arg;
	uint64_t sum = 0;

	while (!atomic_load(&stop))
		for (size_t at = 0; at < 16 * MIB; at += PAGE)
			must(p[at] == 1);
	return (void *)(uintptr_t)sum;
}

/* Others may read the memory at any moment. */
START_TEST(beside_readers)
{
	struct cow_storage *a = new_storage(16 * MIB, COW_STORAGE_TRANSPARENT), *b;
	unsigned char *p = expose(a);
	pthread_t reader;

	memset(p, 1, 16 * MIB);
	must(pthread_create(&reader, NULL, reads, p) == 0);
	for (int i = 0; i < ROUNDS(60); i++) {
		b = lazy(a);
		(void)intent(p, 16 * MIB, COW_WRITE_AUTO);
		if (i % 3)
			cow_storage_unref(b);
		(void)intent(p, 16 * MIB, COW_WRITE_AUTO);
		if (i % 3 == 0)
			cow_storage_unref(b);
	}
	atomic_store(&stop, true);
	pthread_join(reader, NULL);
	cow_storage_unref(a);
}
END_TEST

/* Ranges that are wrong, and memory that is not ours, or that must keep its pages. */
START_TEST(bad_use)
{
	struct cow_storage *a = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 1), *b = lazy(a);
	struct cow_storage *t = new_filled(4 * MIB, 0, 3), *u = lazy(t), *none[2] = { a, NULL };
	unsigned char *p = expose(a), *m, *q = mut(u);
	struct cow_range wraps = { p, SIZE_MAX }, two[2] = { { p, 4 * MIB }, { NULL, 0 } };
	unsigned char local[64] = { 5 };
	uint64_t copied = 77;

	ck_assert_int_eq(cow_write_intent(&wraps, 1, COW_WRITE_AUTO, &copied), -EINVAL);
	ck_assert_int_eq(cow_write_intent(NULL, 1, COW_WRITE_AUTO, &copied), -EINVAL);
	ck_assert_int_eq(cow_write_intent(two, 2, (enum cow_write_hint)5, &copied), -EINVAL);
	ck_assert_int_eq(cow_storages_write_intent(none, 2, COW_WRITE_AUTO, &copied), -EINVAL);
	ck_assert_int_eq(cow_storages_write_intent(NULL, 1, COW_WRITE_AUTO, &copied), -EINVAL);
	ck_assert_int_eq(cow_storages_write_intent(&a, 1, (enum cow_write_hint)-1, NULL),
	                 -EINVAL);
	ck_assert_uint_eq(copied, 77);
	ck_assert_uint_eq(info_of(a).frozen, 1);
	ok(cow_write_intent(NULL, 0, COW_WRITE_AUTO, NULL));
	ok(cow_storages_write_intent(NULL, 0, COW_WRITE_AUTO, NULL));
	ck_assert_uint_eq(intent(p, 4 * MIB, COW_WRITE_SPARSE), 0);
	ck_assert_uint_eq(intent(p, 4 * MIB, COW_WRITE_BY_PAGE), 0);
	ck_assert_uint_eq(info_of(a).frozen, 1);
	/* Not ours, freed, no memory at all. */
	ck_assert_uint_eq(intent(local, sizeof(local), COW_WRITE_ALL), 0);
	ck_assert_uint_eq(local[0], 5);
	ck_assert_uint_eq(intent(NULL, 1 << 20, COW_WRITE_ALL), 0);
	m = mmap(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_uint_eq(intent(m, 4 * MIB, COW_WRITE_AUTO), 0);
	munmap(m, 4 * MIB);
	ck_assert_uint_eq(intent(m, 4 * MIB, COW_WRITE_AUTO), 0);
	/* A tracked storage that shares its bytes: an old pointer is of no use, and the
	 * clones keep their bytes. */
	cow_storage_unref(t);
	t = lazy(u);
	(void)intent(q, 4 * MIB, COW_WRITE_ALL);
	ck_pattern(data(t), 4 * MIB, 3);
	ck_pattern(data(u), 4 * MIB, 3);
	two[1] = two[0];
	ok(cow_write_intent(two, 2, COW_WRITE_BY_COPY, &copied));
	ck_assert_uint_eq(copied, 4 * MIB);
	ck_pattern(p, 4 * MIB, 1);
	/* From the middle to beyond the end, where the clones may lie: all keep their bytes. */
	(void)intent(p + 3 * MIB, 64 * MIB, COW_WRITE_AUTO);
	ck_pattern(p, 4 * MIB, 1);
	ck_pattern(data(b), 4 * MIB, 1);
	ck_pattern(data(t), 4 * MIB, 3);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(t);
	cow_storage_unref(u);
}
END_TEST

/* A storage of each kind. A tracked one gets bytes of its own, as by data_mut. */
START_TEST(of_storages)
{
	struct cow_storage *s[3], *c[3];
	uint64_t copied;

	s[0] = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 1);
	s[1] = new_filled(4 * MIB, 0, 1);
	s[2] = new_filled(100, 0, 1);
	(void)expose(s[0]);
	for (int i = 0; i < 3; i++)
		c[i] = lazy(s[i]);
	ok(cow_storages_write_intent(s, 3, COW_WRITE_AUTO, &copied));
	ck_assert_uint_eq(copied, 4 * MIB);
	for (int i = 0; i < 3; i++) {
		size_t bytes = cow_storage_bytes(s[i]);

		ck_assert_uint_eq(info_of(s[i]).state, COW_STATE_OWNED);
		fill(mut(s[i]), bytes, 2);
		ck_pattern(data(c[i]), bytes, 1);
		cow_storage_unref(c[i]);
		cow_storage_unref(s[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rewrite");
	TCase *tcase = add_case(suite, "rewrite");

	tcase_add_loop_test(tcase, again_and_again, 0, COUNT(sizes));
	tcase_add_loop_test(tcase, without_a_copy, 0, COUNT(sizes));
	tcase_add_test(tcase, nobody_reads_it);
	tcase_add_test(tcase, a_part);
	tcase_add_test(tcase, a_view);
	tcase_add_test(tcase, beside_a_child);
	tcase_add_test(tcase, not_the_childs);
	tcase_add_test(tcase, behind_the_last_byte);
	tcase_add_test(tcase, spare_pages_go);
	tcase_add_test(tcase, spare_pages_of_a_part_go);
	tcase_add_test(tcase, under_io);
	tcase_add_test(tcase, emptied_in_part);
	tcase_add_test(tcase, beside_readers);
	tcase_add_test(tcase, bad_use);
	tcase_add_test(tcase, of_storages);
	return run_suite(suite);
}
