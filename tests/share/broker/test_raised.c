/* SPDX-License-Identifier: MIT */
/*
 * A set-user-ID program that starts a broker does not run its caller's program
 *
 * The program is this one, copied and made set-user-ID. Its caller is the user nobody, whose
 * PATH has another "cowshed". That one would report what it was given.
 */
#include "tests/support/left.h"
#include "tests/support/support.h"

#include <cowshed-broker.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DONE, RUN_BY_PATH, NOT_RUN, NOT_RAISED };

static char folder[LEFT_NAME];

static const char *in(const char *name)
{
	static char paths[2][256];
	static int n;

	n ^= 1;
	snprintf(paths[n], sizeof(paths[n]), "%s/%s", folder, name);
	return paths[n];
}

/* What the copy does. */
static int raised(const char *where)
{
	struct cow_broker_options o = { .size = sizeof(o),
		                        .address = "@cowshed, nobody listens here",
		                        .flags = COW_BROKER_START };
	struct cow_broker *b;

	snprintf(folder, sizeof(folder), "%s", where);
	if (!getauxval(AT_SECURE))
		return NOT_RAISED;
	if (cow_broker_open(&o, &b) != -EPERM)
		return RUN_BY_PATH;
	o.program = in("cowshed");
	return cow_broker_open(&o, &b) == -ECONNREFUSED ? DONE : NOT_RUN;
}

static void as_nobody(void *arg)
{
	(void)arg;
	must(setgid(65534) == 0 && setuid(65534) == 0);
	must(setenv("PATH", folder, 1) == 0 && setenv("TOLD", "by its caller", 1) == 0);
	execl(in("raised"), "raised", "--raised", folder, (char *)NULL);
	_exit(127);
}

static void copy_of_this(const char *path)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);

	must(from >= 0 && to >= 0);
	while (sendfile(to, from, NULL, 1 << 20) > 0)
		;
	must(fchmod(to, 04755) == 0);
	close(from);
	close(to);
}

START_TEST(program_of_its_caller)
{
	char told[64] = "";
	int status;
	FILE *f;

	left_folder(folder, "raised");
	must(chmod(folder, 0777) == 0);
	copy_of_this(in("raised"));
	f = fopen(in("cowshed"), "w");
	must(f);
	fprintf(f, "#!/bin/sh\necho \"<$TOLD>\" >>%s\n", in("told"));
	must(fclose(f) == 0 && chmod(in("cowshed"), 0755) == 0);
	status = child_status(child_start(as_nobody, NULL));
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) == NOT_RAISED) {
		puts("skip program_of_its_caller nothing is raised here");
	} else {
		ck_assert_int_eq(WEXITSTATUS(status), DONE);
		f = fopen(in("told"), "r");
		must(f && fread(told, 1, sizeof(told) - 1, f) > 0);
		fclose(f);
		/* At each try. */
		ck_assert_int_eq(strncmp(told, "<>\n", 3), 0);
		ck_assert_ptr_null(strstr(told, "caller"));
	}
	unlink(in("told"));
	unlink(in("cowshed"));
	unlink(in("raised"));
	rmdir(folder);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *tcase;

	if (argc == 3 && strcmp(argv[1], "--raised") == 0)
		return raised(argv[2]);
	suite = suite_create("broker, raised");
	tcase = add_case(suite, "raised");
	if (geteuid() == 0)
		tcase_add_test(tcase, program_of_its_caller);
	else
		puts("skip program_of_its_caller only root can be another user");
	return run_suite(suite);
}
