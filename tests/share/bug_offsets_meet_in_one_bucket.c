/* SPDX-License-Identifier: MIT */
/*
 * A peer sends many parts of one large sparse file. The receiver's table of homes became one
 * long list: the peer chose offsets whose hashes are equal, and each lookup walked all of
 * them under the lock of sharing.
 */
#include "share/home.h"
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <stdlib.h>
#include <unistd.h>

enum { PARTS = 2000, PLACES = 4096, STEP = 44 };

START_TEST(parts_of_one_file_do_not_meet)
{
	unsigned *in = calloc(PLACES, sizeof(*in)), most = 0;
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	int fd;
	uint64_t offset;

	must(in);
	/* The first home makes the table. */
	ok(cow_storage_export(s, COW_SHARE_SEALED, &fd, &offset));
	close(fd);
	for (uint64_t i = 0; i < PARTS; i++) {
		const struct cow__home_key key = { .dev = 1, .ino = 77, .offset = i << STEP };
		size_t at = cow__home_place(&key);

		ck_assert_uint_lt(at, PLACES);
		if (++in[at] > most)
			most = in[at];
	}
	ck_assert_uint_le(most, 16);
	free(in);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("offsets");
	TCase *tcase = add_case(suite, "offsets");

	tcase_add_test(tcase, parts_of_one_file_do_not_meet);
	return run_suite(suite);
}
