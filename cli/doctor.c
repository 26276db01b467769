/* SPDX-License-Identifier: MIT */
/*
 * cowshed doctor: what this machine offers, and what to change
 *
 * Two kinds of questions. What works is tried, by the library
 * (cow_feature_probe()), never inferred from a version. What is set is read
 * from /proc and /sys (kernel.c, limits.c, cgroup.c). Nothing is changed.
 *
 * A finding is ok, a note (cowshed does without, slower), missing (nothing
 * works without: the exit status is 1), or unknown, said as such: in a
 * container much can't be seen, and a guess would mislead.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static const char page[] =
	"Usage: cowshed doctor\n"
	"Says what this machine offers to cowshed, and how to change it.\n"
	"\n"
	"  -h, --help  this page\n"
	"\n"
	"ok: there; note: it works without, or could be better; missing:\n"
	"needed and not there; unknown: can't be determined here. Nothing is\n"
	"changed. "
	"The exit status is 1 if something needed is missing, else 0.\n";

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
	/* Where there is nothing to do, one line is enough to read. */
	cli_wrap(stdout, INDENT + (int)strlen(name) + 2, state);
	if (brings != NULL && verdict != CLI_OK) {
		printf("%*s%-8s", INDENT, "", "brings");
		cli_wrap(stdout, LABEL - 1, brings);
	}
	if (change != NULL && verdict != CLI_OK) {
		/* Not wrapped: to be copied as it stands. */
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
	bool of_memfds; /* without them it can't be tried, and is of no use */
	const char *brings;
	const char *change;
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
		"and thaws, without copying whole blocks",
		"mount -t proc proc /proc"},
	[COW_FEATURE_PAGEMAP_SCAN] = {false, true,
		"the same, faster (Linux 6.7 and later)", NULL},
	[COW_FEATURE_LOCKS] = {false, true,
		"counting the holders of shared memory, also when they are "
		"killed, so that the last one takes it over without a copy",
		"mount -t proc proc /proc"},
	[COW_FEATURE_THREADS] = {false, false,
		"thaws in programs whose other threads are idle",
		"mount -t proc proc /proc"},
	[COW_FEATURE_UNSHARE] = {false, false,
		"knowing that no other thread is there, for thaws",
		"allow unshare in the container's seccomp profile"},
	[COW_FEATURE_IO_URING] = {false, false,
		"loading files, and saving past the page cache, in parts at once",
		"allow io_uring_setup in the container's seccomp profile, or "
		"sudo sysctl -w kernel.io_uring_disabled=0"},
	[COW_FEATURE_USERFAULTFD] = {false, false,
		"nothing that cowshed has to have",
		"sudo sysctl -w vm.unprivileged_userfaultfd=1"},
};

static void probe_features(void)
{
	bool memfds = cow_feature_probe(COW_FEATURE_MEMFD, NULL, NULL) > 0;

	for (int i = 0; i < COW_FEATURES; i++) {
		const struct feature *f = &features[i];
		const char *name = NULL, *why = NULL;
		int r = cow_feature_probe((enum cow_feature)i, &name, &why);

		if (name == NULL || *name == 0)
			continue; /* a number that means nothing yet */
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
			            f->brings, f->change, "%s", why);
	}
}

static void look_for_shim(void)
{
	char path[PATH_MAX];

	if (cli_shim_find(path) == 0)
		cli_finding(CLI_OK, "shim", NULL, NULL, "%s", path);
	else
		cli_finding(CLI_MISSING, "shim",
		            "'cowshed run', for programs as they are",
		            "make install",
		            "libcowshed-preload.so is not beside "
		            "libcowshed.so.0");
}

static int conclude(void)
{
	int missing = tally.counts[CLI_MISSING];
	int notes = tally.counts[CLI_NOTE];
	int unknown = tally.counts[CLI_UNKNOWN];

	if (missing > 0)
		printf("\n%d needed thing%s missing (%d to note, "
		       "%d unknown).\n", missing,
		       missing == 1 ? " is" : "s are", notes, unknown);
	else
		printf("\nAll that cowshed needs is here (%d to note, "
		       "%d unknown).\n", notes, unknown);
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
		return cli_error("'cowshed doctor' takes no arguments.");
	printf("What works, by trying\n\n");
	look_for_shim();
	probe_features();
	printf("\nHow the kernel is set\n\n");
	cli_doctor_kernel();
	printf("\nLimits of this process, which those it starts inherit\n\n");
	cli_doctor_limits();
	cli_doctor_cgroup();
	printf("\nGPUs, if there are any\n\n");
	cli_doctor_gpu();
	return conclude();
}

const struct cli_command cli_doctor = {
	"doctor", "what this machine offers, what to change", page, doctor_main,
};
