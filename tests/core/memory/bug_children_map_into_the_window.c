/* SPDX-License-Identifier: MIT */
/*
 * A child's own mappings lay among the engine's
 *
 * While the helper works on pages it maps them at addresses of its own, and a
 * child does not inherit such a mapping: where it was is a hole in the window.
 * The kernel gave it to the next mmap(), and free() took what was allocated
 * there for the engine's. So it was with what a program keeps from its children
 * with MADV_DONTFORK.
 */
#include "core/program/advise.h"
#include "tests/support/hold.h"

#include "tests/support/support.h"

#include <stdio.h>
#include <sys/mman.h>

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
	hold_at(SYS_madvise, MADV_REMOVE);
	ck_assert(wait_until(hold_is_on_if_asked, NULL, 10));
	in_child(maps, NULL);
	hold_release();
	ck_pattern(data(a), 8 * MIB, 2);
	cow_storage_unref(a);
}
END_TEST

START_TEST(while_memory_is_committed)
{
	unsigned char *p;

	hold_at(SYS_madvise, HOLD_COLLAPSE);
	p = new_block(64 * MIB, 0);
	fill(p, 32 * MIB, 1);
	ck_assert(wait_until(hold_is_on, NULL, 10));
	in_child(maps, NULL);
	hold_release();
	ck_pattern(p, 32 * MIB, 1);
	cow_block_free(p);
}
END_TEST

START_TEST(without_what_is_not_for_it)
{
	unsigned char *p = new_block(64 * MIB, 0);

	fill(p, 64 * MIB, 1);
	ok(cow__advise((uintptr_t)p + 8 * MIB, 8 * MIB, MADV_DONTFORK));
	ok(cow__advise((uintptr_t)p + 12 * MIB, MIB, MADV_DOFORK));
	in_child(maps, NULL);
	ck_pattern(p, 64 * MIB, 1);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_children_map_into_the_window");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_test(tcase, without_what_is_not_for_it);
	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, while_shadows_go);
	if (!SANITIZED && hold_collapses())
		tcase_add_test(tcase, while_memory_is_committed);
	else
		puts("skip while_memory_is_committed no helper, or no MADV_COLLAPSE");
	return run_suite(suite);
}
