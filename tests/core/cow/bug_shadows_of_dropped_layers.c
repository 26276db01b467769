/* SPDX-License-Identifier: MIT */
/*
 * New storages lost bytes, when a storage was cloned while its shadows went
 *
 * The helper gives file pages under copied ones back without the lock. If they
 * are a layer's, and the storage is cloned meanwhile, it stands on a newer
 * layer then; but the older one must not become free memory before the helper
 * is done with it.
 */
#include "tests/support/hold.h"

#include "tests/support/support.h"

#include <stdio.h>
#include <sys/mman.h>

START_TEST(cloned_while_shadows_go)
{
	const size_t bytes = 64 * MIB, part = 8 * MIB;
	struct cow_storage *a, *clone, *fresh;
	unsigned char *p;

	a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 1);
	p = expose(a);
	clone = lazy(a);
	fill(p, part, 2);
	cow_storage_unref(clone);
	clone = lazy(a); /* a stands on a layer now */
	cow_storage_unref(clone);
	hold_at(SYS_madvise, MADV_REMOVE);
	fill(p, part, 3);
	ck_assert(wait_until(hold_is_on_if_asked, NULL, 10));
	clone = lazy(a); /* on another one */
	fresh = new_filled(part, 0, 4);
	hold_finish();
	cow_storage_unref(clone);
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
	else
		puts("skip cloned_while_shadows_go sanitizers have no helper");
	return run_suite(suite);
}
