/* SPDX-License-Identifier: MIT */
/*
 * doctor: the limits of a process
 *
 * They are those of `cowshed doctor` itself, which the programs that are
 * started from the same shell inherit too. The commands are the shell's.
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
		            "%s; more than %s only root may set",
		            cli_value(limit.rlim_cur, unit).s,
		            cli_value(limit.rlim_max, unit).s);
}

/*
 * Which mappings go into a core dump, a bit each. Memory as it was allocated
 * counts as anonymous shared (bit 1): a memfd has no name in any directory.
 * Once frozen it is a private file mapping (bit 2) until something is written
 * to it.
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
		            "0x%lx: core dumps lack all memory of cowshed's "
		            "(bit 1)", filter);
	else if ((filter & 4) == 0)
		cli_finding(CLI_NOTE, name, "core dumps with all data", change,
		            "0x%lx: core dumps lack frozen blocks that were "
		            "not written since (bit 2)", filter);
	else
		cli_finding(CLI_OK, name, NULL, NULL, "0x%lx", filter);
}

void cli_doctor_limits(void)
{
	one_limit("RLIMIT_NOFILE", RLIMIT_NOFILE, 1024, CLI_COUNT,
	          "descriptors for segments and for sending them",
	          "ulimit -n 4096");
	one_limit("RLIMIT_AS", RLIMIT_AS, RLIM_INFINITY, CLI_BYTES,
	          "a reserved address range of full size, which counts here",
	          "ulimit -v unlimited");
	one_limit("RLIMIT_FSIZE", RLIMIT_FSIZE, RLIM_INFINITY, CLI_BYTES,
	          "segments of any size: the limit holds for memfds too",
	          "ulimit -f unlimited");
	core_dumps();
}
