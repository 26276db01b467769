/* SPDX-License-Identifier: MIT */
/*
 * A view saw what its source wrote, after the source was thawed by halves
 *
 * A thaw goes chunk by chunk: a clean one is mapped shared again, one with many
 * copied pages stays private. If such a storage is then cloned and the clone
 * gets a view of its pages, the shared half must be frozen before its owner,
 * alone on its allocation by now, may write it in place.
 */
#include "tests/support/support.h"

#include <string.h>

enum { CHUNKS = 4 };

/* Every other page of every other chunk: dense enough to stay private. */
static void write_half(unsigned char *p)
{
	size_t chunk, page;

	for (chunk = 1; chunk < CHUNKS; chunk += 2)
		for (page = 0; page < 2 * MIB / PAGE; page += 2)
			p[chunk * 2 * MIB + page * PAGE] ^= 0xff;
}

START_TEST(views_of_half_thawed_storages)
{
	static unsigned char expected[CHUNKS * 2 * MIB];
	static const enum cow_write_hint hints[] = {
		COW_WRITE_AUTO, COW_WRITE_SPARSE, COW_WRITE_BY_PAGE,
	};
	const size_t bytes = sizeof(expected);
	struct cow_storage *base = new_filled(bytes, 0, 1), *a = lazy(base);
	struct cow_storage *view;

	write_half(mut_range(a, 0, 1, COW_WRITE_BY_PAGE));
	cow_storage_unref(base);
	/* Alone: thawed where that pays. */
	mut(a);
	memcpy(expected, data(a), bytes);
	view = lazy(a);
	mut_range(view, 0, 1, COW_WRITE_BY_PAGE);
	memset(mut_range(a, 0, bytes, hints[_i]), 0x5a, bytes);
	ck_assert(memcmp(data(view), expected, bytes) == 0);
	ck_bytes(data(a), bytes, 0x5a);
	cow_storage_unref(a);
	ck_assert(memcmp(data(view), expected, bytes) == 0);
	cow_storage_unref(view);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_half_thawed_source_shows_in_views");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_loop_test(tcase, views_of_half_thawed_storages, 0, 3);
	return run_suite(suite);
}
