/* SPDX-License-Identifier: MIT */
/*
 * A program with raised privileges loads no driver that its caller names
 *
 * Another user starts a set-user-ID copy of this program, with the reference driver in
 * COWSHED_CUDA_DRIVER. The copy's mappings tell whether that driver was loaded. The same
 * copy without the bit loads it.
 */
#include "tests/support/left.h"
#include "tests/support/support.h"

#include <cowshed-cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_LOADED = 40, LOADED, NOT_RAISED };

static int ask(bool raised)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096];
	int said = NOT_LOADED;

	if (!maps || (raised && !getauxval(AT_SECURE)))
		return NOT_RAISED;
	fclose(maps);
	(void)cow_cuda_start();
	maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "/libcaller.so"))
			said = LOADED;
	if (maps)
		fclose(maps);
	return said;
}

struct copy {
	char folder[LEFT_NAME], program[96], driver[96];
	mode_t mode;
};

static void copy(const char *from, const char *to, mode_t mode)
{
	char bytes[1 << 16];
	FILE *in = fopen(from, "r"), *out = fopen(to, "w");
	size_t n;

	must(in && out);
	while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
		must(fwrite(bytes, 1, n, out) == n);
	fclose(in);
	must(fclose(out) == 0);
	must(chmod(to, mode) == 0);
}

static void becomes_it(void *arg)
{
	const struct copy *c = arg;

	must(setenv("COWSHED_CUDA_DRIVER", c->driver, 1) == 0);
	must(setuid(65534) == 0);
	execl(c->program, c->program, c->mode & S_ISUID ? "raised" : "plain",
	      (char *)NULL);
	_exit(127);
}

static int said_by(struct copy *c, mode_t mode)
{
	int status;

	c->mode = mode;
	must(chmod(c->program, mode) == 0);
	status = child_status(child_start(becomes_it, c));
	must(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(a_callers_driver_is_not_loaded)
{
	struct copy c;
	int said;

	left_folder(c.folder, "raised");
	must(chmod(c.folder, 0755) == 0);
	snprintf(c.program, sizeof(c.program), "%s/program", c.folder);
	snprintf(c.driver, sizeof(c.driver), "%s/libcaller.so", c.folder);
	copy("/proc/self/exe", c.program, 0755);
	copy(in_build("tests/driver/libcuda.so.1"), c.driver, 0755);
	ck_assert_int_eq(said_by(&c, 0755), LOADED);
	said = said_by(&c, 04755);
	if (said == NOT_RAISED)
		printf("skip a_callers_driver_is_not_loaded nothing is raised here\n");
	else
		ck_assert_int_eq(said, NOT_LOADED);
	must(unlink(c.program) == 0 && unlink(c.driver) == 0);
	must(rmdir(c.folder) == 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;

	if (argc > 1 && (!strcmp(argv[1], "raised") || !strcmp(argv[1], "plain")))
		return ask(!strcmp(argv[1], "raised"));
	if (geteuid() != 0) {
		printf("skip driver_raised needs root\n");
		return 77;
	}
	suite = suite_create("cuda, raised");
	tcase_add_test(add_case(suite, "raised"), a_callers_driver_is_not_loaded);
	return run_suite(suite);
}
