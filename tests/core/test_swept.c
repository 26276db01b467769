/* SPDX-License-Identifier: MIT */
/*
 * Is every public function swept?
 *
 * The test compares what the libraries export with what the fault_*.c below tests/ call. A
 * new function gets a line there: an operation whose kernel calls fail in turn. A function
 * without kernel calls gets a line of fault_quiet.c, which checks that it makes none.
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

static const char *const maps[] = {
	"core/libcowshed.map",
	"tensor/libcowshed-tensor.map",
	"cuda/libcowshed-cuda.map",
};

static const char *const sources[] = {
	"tests/*/fault_*.c",
	"tests/*/*/fault_*.c",
};

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

/* The names of one map that no source calls, added to *missing; all of them to *all. */
static void look_at_map(const char *path, int *all, int *missing)
{
	char line[256], name[128];
	FILE *map = fopen(path, "r");

	must(map);
	while (fgets(line, sizeof(line), map)) {
		/* cow__: between our own libraries. */
		if (sscanf(line, " cow_%100[a-z0-9_];", name + 4) != 1 ||
		    name[4] == '_')
			continue;
		memcpy(name, "cow_", 4);
		++*all;
		if (!is_swept(name)) {
			fprintf(stderr, "%s: no fault_*.c calls it\n", name);
			++*missing;
		}
	}
	fclose(map);
}

START_TEST(every_public_function)
{
	int missing = 0, all = 0;
	glob_t found;

	for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++)
		must(glob(sources[i], i ? GLOB_APPEND : 0, NULL, &found) == 0);
	for (size_t i = 0; i < found.gl_pathc; i++)
		add_source(found.gl_pathv[i]);
	globfree(&found);
	for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++)
		look_at_map(maps[i], &all, &missing);
	free(swept);
	ck_assert_int_gt(all, 150);
	ck_assert_int_eq(missing, 0);
}
END_TEST

int main(void)
{
	FILE *map = fopen(maps[0], "r");
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
