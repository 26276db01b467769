/* SPDX-License-Identifier: MIT */
/*
 * Random programs of storages, on a machine whose pages are of 64 KiB
 *
 * The programs and their model are tests/fuzz/fuzz_storage.c; what plays the machine is
 * tests/support/fault/pages.h. A program that goes wrong aborts.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/pages.h"
#include "tests/support/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FILES_MAX = 2000, BYTES_MAX = 4096, CHANGES = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count);

static char paths[FILES_MAX][300];
static int files;

static void look(void)
{
	DIR *d = opendir("tests/fuzz/corpus/storage");
	const struct dirent *e;

	while (d && (e = readdir(d)) && files < FILES_MAX)
		if (e->d_name[0] != '.')
			snprintf(paths[files++], sizeof(paths[0]),
			         "tests/fuzz/corpus/storage/%s", e->d_name);
	if (d)
		closedir(d);
}

START_TEST(programs)
{
	struct prng prng = prng_make((uint64_t)_i + 1);
	uint8_t input[BYTES_MAX];
	FILE *f = fopen(paths[_i], "rb");
	size_t count;

	ck_assert_ptr_nonnull(f);
	count = fread(input, 1, sizeof(input), f);
	fclose(f);
	for (int n = 0; n < CHANGES; n++) {
		LLVMFuzzerTestOneInput(input, count);
		for (int k = 0; k < 3; k++)
			input[prng_below(&prng, count)] = (uint8_t)prng_below(&prng, 256);
	}
	ck_assert_uint_eq(fault_pages_refused(), 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("pages");
	TCase *tcase = add_bare_case(suite, "pages");

	(void)argc;
	if (!getenv("FAULT_PAGES")) {
		setenv("FAULT_PAGES", "65536", 1);
		execv("/proc/self/exe", argv);
		perror(argv[0]);
		return 1;
	}
	look();
	if (files == 0) {
		puts("not ok fault_pages: no tests/fuzz/corpus/storage here");
		return 1;
	}
	tcase_add_loop_test(tcase, programs, 0, files);
	return run_suite(suite);
}
