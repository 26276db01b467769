/* SPDX-License-Identifier: MIT */
/*
 * New storages lost bytes, when a storage was cloned while its shadows went
 *
 * The helper gives file pages under copied ones back without the lock. If they
 * are a layer's, and the storage is cloned meanwhile, it stands on a newer
 * layer then; but the older one must not become free memory before the helper
 * is done with it.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "tests/support/support.h"

#include <sys/mman.h>
#include <time.h>

static int helper_punches; /* 0: let it; 1: hold the next one; 2: it is held */
static uint32_t main_tid;

/* Holds the helper just before it gives pages back. */
long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	int one = 1;

	if (nr == SYS_madvise && c == MADV_REMOVE &&
	    real_gate(SYS_gettid, 0, 0, 0, 0, 0, 0) != main_tid &&
	    __atomic_compare_exchange_n(&helper_punches, &one, 2, false,
	                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(&helper_punches, __ATOMIC_ACQUIRE) == 2)
			real_gate(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	return real_gate(nr, a, b, c, d, e, f);
}

static bool held(void *arg)
{
	(void)arg;
	return __atomic_load_n(&helper_punches, __ATOMIC_ACQUIRE) == 2;
}

START_TEST(cloned_while_shadows_go)
{
	const size_t bytes = 64 * MIB, part = 8 * MIB;
	struct cow_storage *a, *clone, *fresh;
	unsigned char *p;

	main_tid = (uint32_t)real_gate(SYS_gettid, 0, 0, 0, 0, 0, 0);
	a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 1);
	p = expose(a);
	clone = lazy(a);
	fill(p, part, 2);
	cow_storage_unref(clone);
	clone = lazy(a); /* a stands on a layer now */
	cow_storage_unref(clone);
	__atomic_store_n(&helper_punches, 1, __ATOMIC_RELEASE);
	fill(p, part, 3);
	ck_assert(wait_until(held, NULL, 10));
	clone = lazy(a); /* on another one */
	fresh = new_filled(part, 0, 4);
	__atomic_store_n(&helper_punches, 0, __ATOMIC_RELEASE);
	cow_storage_unref(clone);
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	ck_pattern(data(fresh), part, 4);
	ck_pattern(data(a), part, 3);
	cow_storage_unref(fresh);
	cow_storage_unref(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_shadows_of_dropped_layers");
	TCase *tcase = add_case(suite, "bug");

	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, cloned_while_shadows_go);
	return run_suite(suite);
}
