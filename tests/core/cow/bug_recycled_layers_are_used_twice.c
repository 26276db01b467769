/* SPDX-License-Identifier: MIT */
/*
 * New storages shared pages, after a storage with layers was thawed and freed
 *
 * Clones of a written storage put layers under it: parts of its address range
 * map pages from elsewhere. When it is thawed those parts are mapped shared,
 * and when it is freed they must be mapped to its own pages again before the
 * range is recycled, since the layers' pages are free now for somebody else.
 */
#include "tests/support/support.h"

enum { PAGES = 1024, NEW = 36 };

/* A storage with layers, alone again, and freed. */
static void leave_layers(uint32_t flags, size_t stride)
{
	const size_t bytes = PAGES * PAGE;
	struct cow_storage *a = new_filled(bytes, flags, 1), *old[4];
	unsigned char *p;
	size_t n, page;

	for (n = 0; n < COUNT(old); n++) {
		old[n] = lazy(a);
		p = mut_range(a, 0, bytes, COW_WRITE_BY_PAGE);
		for (page = n; page < PAGES; page += stride)
			p[page * PAGE] ^= 0xff;
	}
	for (n = 0; n < COUNT(old); n++)
		cow_storage_unref(old[n]);
	/* What comes to an end here may be thawed. */
	mut(a);
	cow_block_free(new_block(MIB, 0));
	if (flags)
		cow_trim();
	cow_storage_unref(a);
}

START_TEST(recycled_after_layers)
{
	static const size_t strides[] = { 7, 20, 60, 300 };
	static const size_t parts[] = { 4, 8, 3, 16, 1, 30, 256, 512, 128 };
	uint32_t flags = _i % 2 ? COW_STORAGE_TRANSPARENT : 0;
	struct cow_storage *new[NEW];
	size_t i, bytes;

	leave_layers(flags, strides[_i / 2]);
	for (i = 0; i < NEW; i++) {
		bytes = PAGES * PAGE / parts[i % COUNT(parts)] + i;
		new[i] = new_storage(bytes, i % 3 ? 0 : COW_STORAGE_ZERO);
		if (i % 3 == 0)
			ck_bytes(data(new[i]), bytes, 0);
		fill(mut(new[i]), bytes, i + 2);
	}
	for (i = 0; i < NEW; i++) {
		ck_pattern(data(new[i]), cow_storage_bytes(new[i]), i + 2);
		cow_storage_unref(new[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_recycled_layers_are_used_twice");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_loop_test(tcase, recycled_after_layers, 0, 8);
	return run_suite(suite);
}
