/* SPDX-License-Identifier: MIT */
/*
 * The program's own mappings: parts end one by one, and nothing is left
 */
#include "core/program/advise.h"
#include "core/program/mapping.h"
#include "tests/support/support.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PARTS = 8, PART = 3 << 20, BYTES = PARTS * PART, BOTH = 3 };

static unsigned char *mapping(void)
{
	static bool parted;
	uintptr_t start;
	void *p;

	if (!parted)
		ok(cow__mapping_init(&start));
	parted = true;
	ok(cow__mapping_new(BYTES, BOTH, &p));
	ck_bytes(p, BYTES, 0);
	for (int k = 0; k < PARTS; k++)
		fill((unsigned char *)p + (size_t)k * PART, PART, k + 1);
	return p;
}

static void unmap(unsigned char *p, int part)
{
	ok(cow__unmap((uintptr_t)p + (size_t)part * PART, PART));
}

/* From both ends and out of the middle. */
static const int order[PARTS] = { 3, 0, 7, 5, 1, 2, 6, 4 };

static void unmap_all(unsigned char *p, bool cut)
{
	struct cow_stats before = stats_now();
	bool gone[PARTS] = { false };

	for (int i = 0; i < PARTS; i++) {
		unmap(p, order[i]);
		gone[order[i]] = true;
		if (cut)
			ck_assert_uint_eq(stats_now().bytes_live,
			                  before.bytes_live -
			                          (size_t)(i + 1) * PART);
		for (int k = 0; k < PARTS; k++)
			if (!gone[k])
				ck_pattern(p + (size_t)k * PART, PART, k + 1);
	}
}

START_TEST(parts_are_cut_out)
{
	struct cow_stats before;

	/* While it commits or mends a mapping, that can't be cut. */
	ok(cow_option_set("helper", "no"));
	before = stats_now();
	unmap_all(mapping(), true);
	ck_assert_uint_eq(stats_now().bytes_live, before.bytes_live);
	ck_assert_uint_eq(stats_now().blocks_live, before.blocks_live);
}
END_TEST

static void waits(void *arg)
{
	gate_wait(arg);
}

/* A frozen one can't be cut; its notes tell when all of it is gone. */
START_TEST(parts_of_a_frozen_one)
{
	struct cow_stats before = stats_now();
	unsigned char *p = mapping();
	struct gate gate;
	pid_t child;

	gate_make(&gate);
	child = child_start(waits, &gate);
	unmap_all(p, false);
	ck_assert_uint_eq(stats_now().bytes_live, before.bytes_live);
	ck_assert_uint_eq(stats_now().blocks_live, before.blocks_live);
	gate_open(&gate);
	child_finish(child);
	gate_free(&gate);
}
END_TEST

static int mapped_times;

static bool counts(void *arg)
{
	(void)arg;
	mapped_times++;
	return false; /* the kernel refuses */
}

/* Its addresses can be had again, unless somebody has them still. */
START_TEST(mapped_over_when_gone)
{
	struct cow_stats before = stats_now();
	unsigned char *p = mapping();
	struct gate gate;
	pid_t child;

	unmap_all(p, false);
	ok(cow__overmap((uintptr_t)p + PART, PART, COW__OVERMAP_HOLES, counts, NULL));
	ck_assert_int_eq(mapped_times, 1);
	ck_assert_uint_eq(stats_now().bytes_live, before.bytes_live);
	ck_assert_uint_eq(stats_now().blocks_live, before.blocks_live);

	p = mapping();
	gate_make(&gate);
	child = child_start(waits, &gate);
	ok(cow__unmap((uintptr_t)p, BYTES));
	ck_assert_int_eq(cow__overmap((uintptr_t)p, PART, COW__OVERMAP_HOLES, counts, NULL),
	                 -EEXIST);
	ck_assert_int_eq(cow__overmap((uintptr_t)p, PART, 0, counts, NULL),
	                 -ENOMEM);
	ck_assert_int_eq(mapped_times, 1);
	gate_open(&gate);
	child_finish(child);
	ok(cow__overmap((uintptr_t)p, PART, 0, counts, NULL));
	ck_assert_int_eq(mapped_times, 2);
	gate_free(&gate);
	ck_assert_uint_eq(stats_now().bytes_live, before.bytes_live);
}
END_TEST

/* A clone of it would have to read what is not there. */
START_TEST(with_a_hole_it_is_no_storage)
{
	unsigned char *p = mapping();
	struct cow_storage *s, *clone;

	ok(cow_storage_from_ptr(p + PART, NULL, &s));
	unmap(p, 3); /* the storage holds on to the rest */
	fails(-ENOENT, cow_storage_from_ptr(p + PART, NULL, &clone));
	cow_storage_unref(s);
	fails(-ENOENT, cow_storage_from_ptr(p + PART, NULL, &clone));
	ck_pattern(p + PART, PART, 2);
	ok(cow__unmap((uintptr_t)p, BYTES));
	p = mapping();
	ok(cow_storage_from_ptr(p, NULL, &s));
	clone = lazy(s);
	memset(p, 0, PART);
	ck_pattern(data(clone), PART, 1);
	cow_storage_unref(clone);
	cow_storage_unref(s);
	ok(cow__unmap((uintptr_t)p, BYTES));
}
END_TEST

/* Where a mapping grows in place, and can't in one piece, no storage is all of it. */
START_TEST(in_parts_it_is_no_storage)
{
	unsigned char *p = mapping();
	size_t half = PARTS / 2 * (size_t)PART;
	struct cow_storage *s, *clone;

	ok(cow__unmap((uintptr_t)p + half, half));
	ok(cow__mapping_grow((uintptr_t)p, half, half + PAGE));
	ok(cow_storage_from_ptr(p, NULL, &s));
	ck_assert_uint_ge(cow_storage_bytes(s), half + PAGE);
	ok(cow__mapping_grow((uintptr_t)p, half + PAGE, BYTES));
	ck_bytes(p + half, half, 0);
	fails(-ENOENT, cow_storage_from_ptr(p, NULL, &clone));
	fails(-ENOENT, cow_storage_from_ptr(p + BYTES - PAGE, NULL, &clone));
	cow_storage_unref(s);
	fails(-ENOENT, cow_storage_from_ptr(p, NULL, &clone));
	for (int k = 0; k < PARTS / 2; k++)
		ck_pattern(p + (size_t)k * PART, PART, k + 1);
	ok(cow__unmap((uintptr_t)p, BYTES));
}
END_TEST

static bool map_anonymous(void *p)
{
	return mmap(p, 4 * MIB, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
	            0) != MAP_FAILED;
}

static bool map_not(void *p)
{
	(void)p;
	return false;
}

static void reads(void *arg)
{
	void **what = arg;

	gate_wait(what[1]);
	ck_pattern(what[0], 16 * MIB, 1);
}

/* What lay there goes back to the kernel, but not what a child reads; and not where the
 * kernel refuses the mapping. */
START_TEST(mapped_over_a_full_block)
{
	unsigned char *p = new_block(16 * MIB, 0);
	struct gate gate;
	void *both[] = { p, &gate };
	uint64_t full;
	pid_t child;

	ok(cow_option_set("helper", "no"));
	fill(p, 16 * MIB, 1);
	full = memfd_bytes();
	gate_make(&gate);
	ok(cow__overmap((uintptr_t)p, 4 * MIB, 0, map_not, p));
	ck_pattern(p, 16 * MIB, 1);
	child = child_start(reads, both);
	ok(cow__overmap((uintptr_t)p, 4 * MIB, 0, map_anonymous, p));
	gate_open(&gate);
	child_finish(child);
	ok(cow__overmap((uintptr_t)p + 8 * MIB, 4 * MIB, 0, map_anonymous,
	                p + 8 * MIB));
	ck_assert_uint_lt(memfd_bytes(), full - 3 * MIB);
	ck_bytes(p, 4 * MIB, 0);
	ck_bytes(p + 8 * MIB, 4 * MIB, 0);
	cow_block_free(p);
	p = new_block(16 * MIB, 0);
	fill(p, 16 * MIB, 2);
	full = memfd_bytes();
	ok(cow__overmap((uintptr_t)p + 4 * MIB, 4 * MIB, 0, map_anonymous,
	                p + 4 * MIB));
	ck_assert_uint_lt(memfd_bytes(), full - 3 * MIB);
	ck_bytes(p + 4 * MIB, 4 * MIB, 0);
	cow_block_free(p);
	gate_free(&gate);
}
END_TEST

/* Advice that takes memory from children, before it is written or when half of it was. Its pages are
 * made once. */
START_TEST(withheld_from_children)
{
	static const int advice[] = { MADV_DONTFORK, MADV_WIPEONFORK };
	const size_t bytes = 64 * MIB, half = _i / 2 % 2 ? bytes / 2 : 0, part = bytes / 4;
	uint64_t before = memory_held();
	unsigned char *p = new_block(bytes, 0);

	fill(p, half, 1);
	/* All at once, or in four calls. */
	for (size_t at = 0; at < bytes; at += _i / 4 ? part : bytes)
		ok(cow__advise((uintptr_t)p + at, _i / 4 ? part : bytes, advice[_i % 2]));
	ck_pattern(p, half, 1);
	fill(p + half, bytes - half, 2);
	ck_pattern(p, half, 1);
	ck_pattern(p + half, bytes - half, 2);
	if (memory_held() > before + bytes + bytes / 4)
		ck_abort_msg("%llu MiB for %zu", (unsigned long long)((memory_held() - before) / MIB),
		             bytes / MIB);
	cow_block_free(p);
}
END_TEST

struct writer {
	unsigned char *block;
	struct gate gate;
	pid_t parent;
};

static void writes_to_its_parent(void *arg)
{
	struct writer *w = arg;
	unsigned char byte = 9;

	gate_wait(&w->gate);
	for (size_t at = 0; at < 16 * MIB; at += PAGE) {
		struct iovec from = { &byte, 1 }, to = { w->block + at, 1 };

		must(process_vm_writev(w->parent, &from, 1, &to, 1, 0) == 1);
	}
}

/* What another process, or a device, writes at that moment is not lost. */
START_TEST(withheld_beside_a_writer)
{
	struct writer w = { .block = new_block(16 * MIB, 0), .parent = getpid() };
	pid_t child;

	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	gate_make(&w.gate);
	fill(w.block, 16 * MIB, 1);
	child = child_start(writes_to_its_parent, &w);
	gate_open(&w.gate);
	ok(cow__advise((uintptr_t)w.block, 16 * MIB, _i ? MADV_WIPEONFORK : MADV_DONTFORK));
	child_finish(child);
	for (size_t at = 0; at < 16 * MIB; at += PAGE)
		ck_assert_uint_eq(w.block[at], 9);
	gate_free(&w.gate);
	cow_block_free(w.block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mapping");
	TCase *tcase = add_case(suite, "mapping");

	tcase_add_test(tcase, parts_are_cut_out);
	tcase_add_test(tcase, parts_of_a_frozen_one);
	tcase_add_test(tcase, mapped_over_when_gone);
	tcase_add_test(tcase, with_a_hole_it_is_no_storage);
	tcase_add_test(tcase, in_parts_it_is_no_storage);
	tcase_add_test(tcase, mapped_over_a_full_block);
	tcase_add_loop_test(tcase, withheld_from_children, 0, 8);
	tcase_add_loop_test(tcase, withheld_beside_a_writer, 0, 2);
	return run_suite(suite);
}
