/* SPDX-License-Identifier: MIT */
/*
 * Is every public function swept?
 *
 * What the library exports is compared with what tests/fault_*.c call. A new
 * function gets a line there: an operation whose kernel calls fail in turn, or,
 * if it makes none, a line of fault_quiet.c, which sees that it makes none.
 *
 * The folder of sources is the one this program was started in, as by make check;
 * elsewhere there is nothing to compare.
 */
#include "tests/support/support.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAP "core/libcowshed.map"

static char *swept;

/* Code alone: a comment calls nothing. */
static void add_source(const char *path)
{
	size_t had = swept ? strlen(swept) : 0, n;
	FILE *f = fopen(path, "r");
	char *at;
	long bytes;

	must(f && fseek(f, 0, SEEK_END) == 0 && (bytes = ftell(f)) >= 0);
	rewind(f);
	swept = realloc(swept, had + (size_t)bytes + 1);
	must(swept);
	n = fread(swept + had, 1, (size_t)bytes, f);
	swept[had + n] = '\0';
	fclose(f);
	for (at = swept + had; (at = strstr(at, "/*")) != NULL;)
		for (bool end = false; !end; at++) {
			must(*at);
			end = at[0] == '*' && at[1] == '/';
			*at = ' ';
		}
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static bool is_swept(const char *name)
{
	size_t n = strlen(name);

	for (const char *at = swept; (at = strstr(at, name)) != NULL; at += n)
		if (!is_word(at[-1]) && !is_word(at[n]))
			return true;
	return false;
}

START_TEST(every_public_function)
{
	char line[256], name[128];
	int missing = 0, all = 0;
	FILE *map = fopen(MAP, "r");
	glob_t sources;

	must(map);
	must(glob("tests/fault_*.c", 0, NULL, &sources) == 0);
	for (size_t i = 0; i < sources.gl_pathc; i++)
		add_source(sources.gl_pathv[i]);
	globfree(&sources);
	while (fgets(line, sizeof(line), map)) {
		/* cow__: between our own libraries. */
		if (sscanf(line, " cow_%100[a-z0-9_];", name + 4) != 1 ||
		    name[4] == '_')
			continue;
		memcpy(name, "cow_", 4);
		all++;
		if (!is_swept(name)) {
			fprintf(stderr, "%s: no tests/fault_*.c calls it\n", name);
			missing++;
		}
	}
	fclose(map);
	free(swept);
	ck_assert_int_gt(all, 150);
	ck_assert_int_eq(missing, 0);
}
END_TEST

int main(void)
{
	FILE *map = fopen(MAP, "r");
	Suite *suite;

	if (!map) {
		puts("skip every_public_function no sources here");
		return 77;
	}
	fclose(map);
	suite = suite_create("swept");
	tcase_add_test(add_bare_case(suite, "swept"), every_public_function);
	return run_suite(suite);
}
