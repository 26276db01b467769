/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of mapped files, with every kernel call failing in turn
 *
 * Whatever fails: a descriptor is kept and goes with its mapping, or there is none.
 */
#include "core/program/files.h"
#include "tests/support/fault/fault.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t bytes = 8 * PAGE;
static const uintptr_t at = (uintptr_t)1 << 44;

static int descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 8192; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int keep(int error, bool in_parts)
{
	char path[] = "/tmp/cowshed-files-XXXXXX";
	int fd = mkstemp(path), before, n = 0;
	bool fired;

	must(fd >= 0 && unlink(path) == 0);
	before = descriptors();
	do {
		fault_after(++n, error);
		cow__files_keep(at, bytes, fd);
		if (in_parts)
			cow__files_forget(at + 3 * PAGE, PAGE);
		fired = fault_disarm();
		ck_assert_int_eq(descriptors() - before, (int)cow__files_kept);
		ck_assert(fired || cow__files_kept == (in_parts ? 2 : 1));
		cow__files_forget(at, bytes);
		ck_assert_uint_eq(cow__files_kept, 0);
		ck_assert_int_eq(descriptors(), before);
	} while (fired);
	close(fd);
	return n;
}

START_TEST(no_descriptor_is_left)
{
	static const int errors[] = { EMFILE, ENOENT, EACCES, EMFILE | FAULT_LASTING };

	ck_assert_int_gt(keep(errors[_i], false), 1);
	ck_assert_int_gt(keep(errors[_i], true), 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_files");
	TCase *tcase = add_case(suite, "files");

	tcase_add_loop_test(tcase, no_descriptor_is_left, 0, 4);
	return run_suite(suite);
}
