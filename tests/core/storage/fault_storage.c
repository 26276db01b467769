/* SPDX-License-Identifier: MIT */
/*
 * Storages and blocks, with every kernel call failing in turn
 *
 * What must hold is in tests/support/fault/sweep.h. Here: making, resizing,
 * swapping, exposing and freeing what nobody shares, from a cold engine each
 * time, so that segments, slabs and metadata have to be had first. What is
 * shared: fault_clone.c.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRED = 3 }; /* a child's exit status */

static int new_one(struct herd *herd, enum herd_kind kind, size_t bytes,
                   uint32_t flags)
{
	struct cow_storage_options options = {
		.size = sizeof(options),
		.flags = flags,
	};
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_new(bytes, &options, &s);

	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		return r;
	}
	if (flags & COW_STORAGE_ZERO) {
		herd->animals[kind].storage = s;
		herd->animals[kind].bytes = bytes;
	} else {
		sweep_add(herd, kind, s, NULL, bytes);
	}
	if (flags & COW_STORAGE_TRANSPARENT)
		herd->animals[kind].exposed = expose(s);
	return 0;
}

static void nothing(struct herd *herd)
{
	(void)herd;
}

static int new_small(struct herd *herd)
{
	return new_one(herd, HERD_TINY, 1000, 0);
}

static int new_large(struct herd *herd)
{
	return new_one(herd, HERD_OWNED, 5 * MIB, 0);
}

static int new_zero(struct herd *herd)
{
	return new_one(herd, HERD_ZERO, 3 * MIB, COW_STORAGE_ZERO);
}

static int new_small_zero(struct herd *herd)
{
	return new_one(herd, HERD_ZERO, 1000, COW_STORAGE_ZERO);
}

static int new_strict(struct herd *herd)
{
	return new_one(herd, HERD_OWNED, 3 * MIB, COW_STORAGE_STRICT);
}

static int new_transparent(struct herd *herd)
{
	return new_one(herd, HERD_TRANSPARENT, 2 * MIB,
	               COW_STORAGE_TRANSPARENT);
}

static int new_transparent_small(struct herd *herd)
{
	return new_one(herd, HERD_TRANSPARENT_SMALL, 100,
	               COW_STORAGE_TRANSPARENT);
}

/* Warm memory of a size that has to be cut. */
static void warm(struct herd *herd)
{
	new_one(herd, HERD_OWNED, 3 * MIB, 0);
	cow_storage_unref(new_filled(9 * MIB, 0, 5));
}

static int new_recycled(struct herd *herd)
{
	return new_one(herd, HERD_ZERO, 2 * MIB, COW_STORAGE_ZERO);
}

static void small(struct herd *herd)
{
	sweep_add(herd, HERD_SMALL, new_storage(900, 0), NULL, 900);
}

static void large(struct herd *herd)
{
	sweep_add(herd, HERD_SMALL, new_storage(3 * MIB, 0), NULL, 3 * MIB);
}

static void small_and_large(struct herd *herd)
{
	small(herd);
	sweep_add(herd, HERD_OWNED, new_storage(3 * MIB, 0), NULL, 3 * MIB);
}

static int resize_to(struct herd *herd, size_t bytes)
{
	struct animal *a = &herd->animals[HERD_SMALL];
	int r = cow_storage_resize(a->storage, bytes);

	if (r < 0) {
		must(cow_storage_bytes(a->storage) == a->bytes);
		return r;
	}
	ck_pattern(data(a->storage), bytes < a->bytes ? bytes & ~(size_t)7
	                                              : a->bytes & ~(size_t)7,
	           a->seed);
	a->bytes = bytes;
	fill(mut(a->storage), bytes, a->seed);
	return 0;
}

static int resize_up(struct herd *herd)
{
	return resize_to(herd, 5 * MIB + 5);
}

static int resize_down(struct herd *herd)
{
	return resize_to(herd, 100);
}

static int swap(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_SMALL];
	static unsigned char heap[20000];
	struct cow_data_ptr ptr = cow_data_ptr_make(
		heap, NULL, NULL, (struct cow_device){ COW_DEVICE_CPU, 0 });
	struct cow_data_ptr before = ptr;
	int r;

	fill(heap, sizeof(heap), 77);
	r = cow_storage_swap_data_ptr(a->storage, &ptr, sizeof(heap));
	if (r < 0) {
		ck_assert_mem_eq(&ptr, &before, sizeof(ptr));
		return r;
	}
	ck_pattern(ptr.data, a->bytes, a->seed);
	fill(ptr.data, a->bytes, 78);
	cow_data_ptr_clear(&ptr);
	a->bytes = sizeof(heap);
	a->seed = 77;
	return 0;
}

static void small_shared(struct herd *herd)
{
	small(herd);
	sweep_add_clone(herd, HERD_SMALL, HERD_LAZY_A,
	                lazy(herd->animals[HERD_SMALL].storage));
}

static void large_shared(struct herd *herd)
{
	large(herd);
	sweep_add_clone(herd, HERD_SMALL, HERD_LAZY_A,
	                lazy(herd->animals[HERD_SMALL].storage));
}

static int expose_one(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_SMALL];
	void *at = SWEEP_UNTOUCHED;
	int r = cow_storage_expose(a->storage, &at);

	if (r < 0) {
		ck_assert_ptr_eq(at, SWEEP_UNTOUCHED);
		return r;
	}
	a->exposed = at;
	return 0;
}

static int new_external(struct herd *herd)
{
	static unsigned char heap[20000];
	struct cow_data_ptr ptr = cow_data_ptr_make(
		heap, NULL, NULL, (struct cow_device){ COW_DEVICE_CPU, 0 });
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_new_external(&ptr, sizeof(heap), NULL, &s);

	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		ck_assert_ptr_eq(ptr.data, heap);
		return r;
	}
	sweep_add(herd, HERD_EXTERNAL, s, NULL, sizeof(heap));
	return 0;
}

static void external(struct herd *herd)
{
	ok(new_external(herd));
}

static int clone_external(struct herd *herd)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_lazy_clone(herd->animals[HERD_EXTERNAL].storage,
	                               &s);

	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		return r;
	}
	sweep_add_clone(herd, HERD_EXTERNAL, HERD_LAZY_A, s);
	return 0;
}

static int new_block_of(struct herd *herd, size_t bytes, size_t alignment)
{
	void *block = SWEEP_UNTOUCHED;
	int r = cow_block_new(bytes, alignment, 0, &block);

	if (r < 0) {
		ck_assert_ptr_eq(block, SWEEP_UNTOUCHED);
		return r;
	}
	must(alignment == 0 || (uintptr_t)block % alignment == 0);
	sweep_add(herd, HERD_BLOCK, NULL, block, bytes);
	return 0;
}

static int block_new(struct herd *herd)
{
	return new_block_of(herd, 3 * MIB, 0);
}

static int block_new_aligned(struct herd *herd)
{
	return new_block_of(herd, 70000, 16 * MIB);
}

static void block(struct herd *herd)
{
	ok(new_block_of(herd, 3 * MIB, 0));
}

/* Something behind it, so that it can't grow in place. */
static void block_wedged(struct herd *herd)
{
	ok(new_block_of(herd, 2 * MIB, 0));
	sweep_add(herd, HERD_BLOCK_LARGE, NULL, new_block(2 * MIB, 0), 2 * MIB);
}

static int block_to(struct herd *herd, size_t bytes)
{
	struct animal *a = &herd->animals[HERD_BLOCK];
	void *block_now = SWEEP_UNTOUCHED;
	int r = cow_block_resize(a->block, bytes, &block_now);

	if (r < 0) {
		ck_assert_ptr_eq(block_now, SWEEP_UNTOUCHED);
		return r;
	}
	a->block = block_now;
	ck_pattern(a->block, bytes < a->bytes ? bytes : a->bytes, a->seed);
	a->bytes = bytes;
	fill(a->block, bytes, a->seed);
	return 0;
}

static int block_grow(struct herd *herd)
{
	return block_to(herd, 9 * MIB);
}

static int block_shrink(struct herd *herd)
{
	return block_to(herd, 128 * KIB);
}

static int block_find(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_BLOCK];
	struct cow_storage *s = SWEEP_UNTOUCHED;
	size_t offset = 5;
	int r = cow_storage_from_ptr(a->block + 9, &offset, &s);

	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		ck_assert_uint_eq(offset, 5);
		return r;
	}
	ck_assert_uint_eq(offset, 9);
	cow_block_free(a->block);
	a->block = NULL;
	a->storage = s;
	a->exposed = expose(s);
	return 0;
}

static int free_all(struct herd *herd)
{
	herd_free(herd);
	return 0;
}

static int trim(struct herd *herd)
{
	(void)herd;
	return cow_trim() < 0 ? -EIO : 0;
}

static const struct operation operations[] = {
	{ "new small", nothing, new_small },
	{ "new small zero", nothing, new_small_zero },
	{ "new large", nothing, new_large },
	{ "new zero", nothing, new_zero },
	{ "new strict", nothing, new_strict },
	{ "new transparent", nothing, new_transparent },
	{ "new small transparent", nothing, new_transparent_small },
	{ "clone external", external, clone_external },
	{ "resize small up", small, resize_up },
	{ "resize shared up", large_shared, resize_up },
	{ "swap shared", large_shared, swap },
	{ "expose shared", large_shared, expose_one },
	{ "block", nothing, block_new },
	{ "aligned block", nothing, block_new_aligned },
	{ "grow block", block, block_grow },
	{ "grow block with a neighbour", block_wedged, block_grow },
	{ "trim warm memory", warm, trim },
	{ "resize large down", large, resize_down, SWEEP_COLLAPSE },
	{ "shrink block", block, block_shrink, SWEEP_COLLAPSE },
	{ "free", small_and_large, free_all, SWEEP_COLLAPSE },
	/* As long as there is metadata these make no call. */
	{ "new recycled", warm, new_recycled, SWEEP_POOLS },
	{ "swap", small_and_large, swap, SWEEP_POOLS },
	{ "find block", block, block_find, SWEEP_POOLS },
	{ "new external", nothing, new_external, SWEEP_POOLS },
	{ "resize shared down", large_shared, resize_down, SWEEP_POOLS },
	{ "expose small", small, expose_one, SWEEP_POOLS },
	{ "expose small shared", small_shared, expose_one, SWEEP_POOLS },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
}
END_TEST

/* The engine's own start: nothing was there before the failure. */
static void first_use(void *arg)
{
	struct herd herd;
	bool fired;
	int r;

	memset(&herd, 0, sizeof(herd));
	fault_after(((int *)arg)[0], ((int *)arg)[1]);
	r = new_large(&herd);
	if (r == 0)
		r = new_small(&herd);
	fired = fault_disarm();
	must(fired || r == 0);
	herd_check(&herd);
	herd_rewrite(&herd, 9, 1);
	herd_check(&herd);
	herd_free(&herd);
	cow_trim();
	must(stats_now().bytes_live == 0);
	if (fired)
		_exit(FIRED);
}

START_TEST(first_use_fails)
{
	int plan[2] = { 0, sweep_errors[_i] }, status;

	do {
		plan[0]++;
		status = child_status(child_start(first_use, plan));
		must(WIFEXITED(status));
		must(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FIRED);
	} while (WEXITSTATUS(status) == FIRED);
	must(plan[0] > ((plan[1] & ~FAULT_LASTING) == FAULT_POOLS ? 5 : 20));
}
END_TEST

/* The hundredth call would fail, and there is none: anonymous memory is looked at, cleared
 * and copied in runs, however many pages these have. */
START_TEST(few_calls_for_many_pages)
{
	enum { BYTES = 32 * MIB };
	unsigned char *p, *fence;
	void *moved;

	ok(cow_option_set("helper", "no"));
	ok(cow_option_set("backing", "anon"));
	p = new_block(BYTES, 0);
	fill(p, BYTES, 1);
	cow_block_free(p);
	fault_after(100, ENOMEM);
	p = new_block(BYTES, COW_BLOCK_ZERO);
	must(!fault_disarm());
	ck_bytes(p, BYTES, 0);
	fill(p, BYTES, 2);
	fence = new_block(2 * MIB, 0);
	fault_after(100, ENOMEM);
	ok(cow_block_resize(p, 4 * BYTES, &moved));
	must(!fault_disarm());
	ck_pattern(moved, BYTES, 2);
	cow_block_free(moved);
	cow_block_free(fence);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_storage");
	TCase *tcase = add_case(suite, "fault_storage");
	TCase *cold = add_bare_case(suite, "cold");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	tcase_add_test(tcase, few_calls_for_many_pages);
	tcase_add_loop_test(cold, first_use_fails, 0, SWEEP_ERRORS);
	return run_suite(suite);
}
