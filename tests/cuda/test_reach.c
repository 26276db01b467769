/* SPDX-License-Identifier: MIT */
/*
 * A device that reaches another one's memory: memory from before that, and later memory
 *
 * Memory that is mapped piece by piece is opened piece by piece. The reference driver ends
 * the process if a device touches memory that was not opened for it.
 */
#include "cuda/piece.h"
#include "tests/support/cuda.h"

static void fill_from_1(const struct cow_storage *s, unsigned char value)
{
	struct cow__cu_context *c;

	cu_ok(cu->ctx_push_current(driver_context(1)));
	cu_ok(cu->set_8((uintptr_t)cow_storage_data(s), value, cow_storage_bytes(s), NULL));
	cu_ok(cu->ctx_pop_current(&c));
	cuda_finish(1);
	cuda_check(s, value);
}

static void not_yet(void *s)
{
	fill_from_1(s, 1);
}

static void both(void)
{
	struct cow_storage *s[4];
	struct cow__cuda *d0, *d1;

	ok(cow__cuda_get(0, &d0));
	ok(cow__cuda_get(1, &d1));
	s[0] = cuda_storage(0, 1000, COW_CUDA_CACHED);
	s[1] = cuda_storage(0, 30 * MIB, COW_CUDA_CACHED);
	ok(cow__cuda_enter(d1));
	ok(cow__cuda_reach(d1, d0));
	cow__cuda_leave(d1);
	s[2] = cuda_storage(0, 30 * MIB, COW_CUDA_CACHED);
	s[3] = cuda_storage(0, 3 * MIB, COW_CUDA_SINGLE);
	for (size_t i = 0; i < COUNT(s); i++) {
		fill_from_1(s[i], (unsigned char)(i + 1));
		cow_storage_unref(s[i]);
	}
}

START_TEST(memory_of_before_and_after)
{
	cuda_start();
	both();
	cuda_nothing_left();
}
END_TEST

static void without(void *arg)
{
	(void)arg;
	cuda_start();
	not_yet(cuda_storage(0, 1000, COW_CUDA_CACHED));
}

START_TEST(not_before)
{
	in_child_scolded(without, NULL, "access");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_reach");
	TCase *c = add_case(s, "reach");

	add_test_needing(NEEDS_TWO_DEVICES, c, memory_of_before_and_after);
	add_test_needing(NEEDS_CONTROL, c, not_before);
	return run_suite(s);
}
