/* SPDX-License-Identifier: MIT */
/*
 * A child's own mappings lay among the engine's
 *
 * While the helper works on pages it maps them at addresses of its own, and a
 * child does not inherit such a mapping: where it was is a hole in the window.
 * The kernel gave it to the next mmap(), and free() took what was allocated
 * there for the engine's.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "tests/support/support.h"

#include <sys/mman.h>

static long held_advice;
static int hold; /* 1: hold the helper at its next such call; 2: it is held */
static long main_tid;

long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	int one = 1;

	if (nr == SYS_madvise && c == held_advice &&
	    real_gate(SYS_gettid, 0, 0, 0, 0, 0, 0) != main_tid &&
	    __atomic_compare_exchange_n(&hold, &one, 2, false,
	                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(&hold, __ATOMIC_ACQUIRE) == 2)
			real_gate(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	return real_gate(nr, a, b, c, d, e, f);
}

static bool held(void *arg)
{
	(void)arg;
	return __atomic_load_n(&hold, __ATOMIC_ACQUIRE) == 2;
}

static void hold_at(long advice)
{
	main_tid = real_gate(SYS_gettid, 0, 0, 0, 0, 0, 0);
	held_advice = advice;
	__atomic_store_n(&hold, 1, __ATOMIC_RELEASE);
}

/* Fills the space above the window first, which the kernel prefers. */
static void maps(void *arg)
{
	const size_t bytes = MIB;
	uintptr_t start, end, at;
	int n;

	(void)arg;
	cow_window(&start, &end);
	for (n = 0; n < 2000; n++) {
		at = (uintptr_t)mmap(NULL, bytes, PROT_NONE,
		                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ck_assert(at < start || at >= end);
	}
}

START_TEST(while_shadows_go)
{
	struct cow_storage *a = new_filled(64 * MIB,
	                                   COW_STORAGE_TRANSPARENT, 1);
	struct cow_storage *clone = lazy(a);

	fill(expose(a), 8 * MIB, 2);
	cow_storage_unref(clone);
	hold_at(MADV_REMOVE);
	ck_assert(wait_until(held, NULL, 10));
	in_child(maps, NULL);
	__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
	ck_pattern(data(a), 8 * MIB, 2);
	cow_storage_unref(a);
}
END_TEST

START_TEST(while_memory_is_committed)
{
	unsigned char *p;

	hold_at(25); /* MADV_COLLAPSE */
	p = new_block(64 * MIB, 0);
	fill(p, 32 * MIB, 1);
	ck_assert(wait_until(held, NULL, 10));
	in_child(maps, NULL);
	__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
	ck_pattern(p, 32 * MIB, 1);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_children_map_into_the_window");
	TCase *tcase = add_case(suite, "bug");

	if (!SANITIZED) { /* they have no helper */
		tcase_add_test(tcase, while_shadows_go);
		tcase_add_test(tcase, while_memory_is_committed);
	}
	return run_suite(suite);
}
