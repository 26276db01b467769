/* SPDX-License-Identifier: MIT */
/*
 * cowshed doctor: checks the machine, and says what to change
 *
 * The library tries each feature (cow_feature_probe()); a version proves
 * nothing. Settings and limits are read from /proc and /sys (kernel.c,
 * limits.c, cgroup.c). doctor changes nothing. A finding is one of:
 *
 *      ok        it works
 *      note      cowshed works without it, but slower
 *      missing   cowshed needs it: the exit status is 1
 *      unknown   a container hides it; a guess would mislead
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char page[] =
	"Usage: cowshed doctor\n"
	"Checks what this machine offers to cowshed, and says how to change it.\n"
	"\n"
	"  -h, --help  this help\n"
	"\n"
	"Each finding is one of:\n"
	"  ok          it is there\n"
	"  note        cowshed works without it, or could do better\n"
	"  missing     cowshed needs it, and it is not there\n"
	"  unknown     it can't be determined here\n"
	"\n"
	"doctor changes nothing. The exit status is 1 if something is missing,\n"
	"else 0.\n";

static struct {
	int counts[CLI_UNKNOWN + 1];
} tally;

enum { INDENT = 9, LABEL = 18 };

void cli_finding(enum cli_verdict verdict, const char *name,
                 const char *brings, const char *change,
                 const char *format, ...)
{
	static const char *const words[] = {"ok", "note", "missing", "unknown"};
	char state[600];
	va_list args;

	va_start(args, format);
	vsnprintf(state, sizeof state, format, args);
	va_end(args);
	cli_tame(state);
	tally.counts[verdict]++;
	printf("%-*s%s: ", INDENT, words[verdict], name);
	/* An ok has nothing to change: this line says enough. */
	cli_wrap(stdout, INDENT + (int)strlen(name) + 2, state);
	if (brings != NULL && verdict != CLI_OK) {
		printf("%*s%-8s", INDENT, "", "brings");
		cli_wrap(stdout, LABEL - 1, brings);
	}
	if (change != NULL && verdict != CLI_OK) {
		/* Not wrapped, so that a terminal copies it whole. */
		printf("%*s%-8s%s\n", INDENT, "", "change", change);
	}
}

int cli_read_line(const char *path, char *ret, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, ret, bytes - 1);
	if (n < 0) {
		n = -errno;
		close(fd);
		return (int)n;
	}
	close(fd);
	ret[n] = 0;
	ret[strcspn(ret, "\n")] = 0;
	return 0;
}

/* ---- What the library tries ---------------------------------------------- */

struct feature {
	bool needed;
	bool of_memfds; /* of no use without memfds, and not to be tried */
	const char *brings;
	const char *change; /* NULL, without of_proc: there is nothing to change */
	bool of_proc;       /* to mount /proc may help, where it is missing */
};

static const struct feature features[COW_FEATURES] = {
	[COW_FEATURE_MEMFD] = {true, false,
		"everything: memory that can be shared, cloned and sealed",
		"allow memfd_create and F_ADD_SEALS in the container's seccomp "
		"profile"},
	[COW_FEATURE_COLLAPSE] = {false, true,
		"huge pages: fast first touches, cheap forks",
		"see transparent_hugepage/shmem_enabled below"},
	[COW_FEATURE_PAGEMAP] = {false, true,
		"knowing which pages were written: clones of written clones, "
		"and thaws, need not copy whole blocks",
		NULL, true},
	[COW_FEATURE_PAGEMAP_SCAN] = {false, true,
		"finding written pages faster (Linux 6.7 and later)", NULL},
	[COW_FEATURE_LOCKS] = {false, true,
		"counting the processes that hold shared memory, even if one "
		"is killed: the last one takes it over without a copy",
		NULL, true},
	[COW_FEATURE_THREADS] = {false, false,
		"thaws in programs whose other threads are idle",
		NULL, true},
	[COW_FEATURE_UNSHARE] = {false, false,
		"knowing that the process has one thread, for thaws",
		"allow unshare in the container's seccomp profile"},
	[COW_FEATURE_IO_URING] = {false, false,
		"loading files, and saving past the page cache, several parts "
		"at a time",
		"allow io_uring_setup in the container's seccomp profile, or "
		"sudo sysctl -w kernel.io_uring_disabled=0"},
	[COW_FEATURE_USERFAULTFD] = {false, false,
		"shorter waits while memory thaws (Linux 6.7 and later)",
		"allow userfaultfd in the container's seccomp profile"},
};

static const char *change_of(const struct feature *f)
{
	if (f->of_proc && access("/proc/self/fd", F_OK) < 0)
		return "mount -t proc proc /proc";
	return f->change;
}

static void probe_features(void)
{
	bool memfds = cow_feature_probe(COW_FEATURE_MEMFD, NULL, NULL) > 0;

	for (int i = 0; i < COW_FEATURES; i++) {
		const struct feature *f = &features[i];
		const char *name = NULL, *why = NULL;
		int r = cow_feature_probe((enum cow_feature)i, &name, &why);

		if (name == NULL || *name == 0)
			continue; /* a number without a feature */
		if (why == NULL || *why == 0)
			why = r > 0 ? "works" : "does not work here";
		if (r < 0)
			cli_finding(CLI_UNKNOWN, name, f->brings, NULL,
			            "can't be determined: %s", strerror(-r));
		else if (f->of_memfds && !memfds)
			cli_finding(CLI_UNKNOWN, name, f->brings, NULL,
			            "can't be determined without a memfd");
		else if (r > 0)
			cli_finding(CLI_OK, name, NULL, NULL, "%s", why);
		else
			cli_finding(f->needed ? CLI_MISSING : CLI_NOTE, name,
			            f->brings, change_of(f), "%s", why);
	}
}

static void look_for_shim(void)
{
	char path[PATH_MAX];

	if (cli_shim_find(path) == 0)
		cli_finding(CLI_OK, "shim", NULL, NULL, "%s", path);
	else
		cli_finding(CLI_MISSING, "shim",
		            "'cowshed run', for unmodified programs",
		            "make install",
		            "there is no libcowshed-preload.so beside "
		            "libcowshed.so.0");
}

/* COWSHED_OPTIONS here, and what running processes did not understand of theirs. */
static void look_at_options(void)
{
	struct cow_settings own = {.size = sizeof own};
	const char *options = getenv("COWSHED_OPTIONS");
	struct cli_process *list = NULL;
	ssize_t count = cli_process_scan(&list);
	char text[4096];

	(void)cow_settings_read(0, &own);
	cli_finding(CLI_OK, "version", NULL, NULL, "%s, commit %s", own.version,
	            own.commit[0] != 0 ? own.commit : "unknown");
	if (options == NULL || *options == 0)
		cli_finding(CLI_OK, "options", NULL, NULL, "COWSHED_OPTIONS is not set");
	else if (cow_options_check(options, NULL, NULL) == 0)
		cli_finding(CLI_OK, "options", NULL, NULL, "%s", options);
	else
		cli_finding(CLI_NOTE, "options", "the option that is meant",
		            "correct COWSHED_OPTIONS (docs/options.md)",
		            "%s: %s", options, cow_last_error());
	for (ssize_t i = 0; i < count; i++) {
		if (list[i].unserved)
			cli_process_mistakes(list[i].pid, text, sizeof text);
		else
			cli_refused_text(&list[i].settings, text, sizeof text);
		if (*text != 0)
			cli_finding(CLI_NOTE, "a process", "the option that is meant",
			            "correct its COWSHED_OPTIONS (docs/options.md)",
			            "%s (pid %ld): %s", list[i].name,
			            (long)list[i].pid, text);
	}
	free(list);
}

static int conclude(void)
{
	int missing = tally.counts[CLI_MISSING];
	int notes = tally.counts[CLI_NOTE];
	int unknown = tally.counts[CLI_UNKNOWN];

	if (missing > 0)
		printf("\n%d thing%s that cowshed needs %s missing "
		       "(%d to note, %d unknown).\n", missing,
		       missing == 1 ? "" : "s", missing == 1 ? "is" : "are",
		       notes, unknown);
	else
		printf("\ncowshed has everything that it needs "
		       "(%d to note, %d unknown).\n", notes, unknown);
	return missing > 0;
}

static int doctor_main(int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int found = getopt_long(argc, argv, ":h", options, NULL);

	if (found == 'h')
		return cli_help(&cli_doctor);
	if (found != -1)
		return cli_bad_option(found, argv);
	if (optind < argc)
		return cli_error("'cowshed doctor' takes no arguments: "
		                 "leave out '%s'.", argv[optind]);
	printf("What works: each was tried\n\n");
	look_for_shim();
	probe_features();
	printf("\nOptions\n\n");
	look_at_options();
	printf("\nSettings of the kernel\n\n");
	cli_doctor_kernel();
	printf("\nLimits of this process and of programs from the same "
	       "shell\n\n");
	cli_doctor_limits();
	cli_doctor_cgroup();
	printf("\nGPUs\n\n");
	cli_doctor_gpu();
	return conclude();
}

const struct cli_command cli_doctor = {
	"doctor", "check this machine, and say what to change", page,
	doctor_main,
};
