/* SPDX-License-Identifier: MIT */
/*
 * doctor: the limits of a process
 *
 * `cowshed doctor` looks at its own limits. It has them from its shell, and so
 * has every program that the shell starts. The changes are commands of the shell.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static void one_limit(const char *name, int which, rlim_t enough,
                      enum cli_unit unit, const char *brings,
                      const char *change)
{
	struct rlimit limit;

	if (getrlimit(which, &limit) < 0)
		cli_finding(CLI_UNKNOWN, name, brings, NULL,
		            "can't be determined: %s", strerror(errno));
	else if (limit.rlim_cur == RLIM_INFINITY)
		cli_finding(CLI_OK, name, NULL, NULL, "unlimited");
	else if (limit.rlim_cur >= enough)
		cli_finding(CLI_OK, name, NULL, NULL, "%s",
		            cli_value(limit.rlim_cur, unit).s);
	else if (limit.rlim_max >= enough) /* infinity is the largest */
		cli_finding(CLI_NOTE, name, brings, change, "%s",
		            cli_value(limit.rlim_cur, unit).s);
	else
		cli_finding(CLI_NOTE, name, brings, change,
		            "%s; only root may raise it above %s",
		            cli_value(limit.rlim_cur, unit).s,
		            cli_value(limit.rlim_max, unit).s);
}

/*
 * Each bit of coredump_filter puts a kind of mapping into core dumps. Fresh
 * memory counts as anonymous and shared (bit 1), because a memfd has no name in
 * any directory. Frozen memory is a private file mapping (bit 2) until the
 * program writes to it.
 */
static void core_dumps(void)
{
	const char *name = "coredump_filter";
	const char *path = "/proc/self/coredump_filter";
	const unsigned long wanted = 1u << 1 | 1u << 2;
	char line[64], change[96], *end;
	unsigned long filter;
	int r = cli_read_line(path, line, sizeof line);

	filter = r < 0 ? 0 : strtoul(line, &end, 16);
	if (r < 0 || end == line) {
		cli_finding(CLI_UNKNOWN, name, NULL, NULL,
		            "can't be determined: %s: %s", path,
		            r < 0 ? strerror(-r) : "not a number");
		return;
	}
	snprintf(change, sizeof change, "echo 0x%lx > %s", filter | wanted,
	         "/proc/$$/coredump_filter");
	if ((filter & 2) == 0)
		cli_finding(CLI_NOTE, name, "core dumps with all data", change,
		            "0x%lx: core dumps lack all memory of cowshed "
		            "(bit 1)", filter);
	else if ((filter & 4) == 0)
		cli_finding(CLI_NOTE, name, "core dumps with all data", change,
		            "0x%lx: core dumps lack frozen blocks that the "
		            "program has not written since (bit 2)", filter);
	else
		cli_finding(CLI_OK, name, NULL, NULL, "0x%lx", filter);
}

void cli_doctor_limits(void)
{
	one_limit("RLIMIT_NOFILE", RLIMIT_NOFILE, 1024, CLI_COUNT,
	          "descriptors for segments and for sending them",
	          "ulimit -n 4096");
	one_limit("RLIMIT_AS", RLIMIT_AS, RLIM_INFINITY, CLI_BYTES,
	          "an address range of full size, all of which counts here",
	          "ulimit -v unlimited");
	one_limit("RLIMIT_FSIZE", RLIMIT_FSIZE, RLIM_INFINITY, CLI_BYTES,
	          "segments of any size: this limit counts for memfds too",
	          "ulimit -f unlimited");
	core_dumps();
}
