/* SPDX-License-Identifier: MIT */
/*
 * doctor: settings of the kernel
 *
 * They are read from /proc/sys and /sys; none is changed. An absent setting is
 * no fault: older kernels lack it, and the probes in doctor.c tell what works.
 * A setting that is there and can't be read is unknown.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE "/sys/kernel/mm/transparent_hugepage/"
#define SHMEM HUGE "shmem_enabled"

/* Reads a setting. If it can't be read, prints a finding and returns false.
 * `absent` is the text if the setting is not there; NULL: that is unknown. */
static bool get(const char *name, const char *path, const char *absent,
                char *ret, size_t bytes)
{
	int r = cli_read_line(path, ret, bytes);

	if (r == 0)
		return true;
	if (r == -ENOENT && absent != NULL)
		cli_finding(CLI_OK, name, NULL, NULL, "%s", absent);
	else
		cli_finding(CLI_UNKNOWN, name, NULL, NULL,
		            "can't be determined: %s: %s", path, strerror(-r));
	return false;
}

static bool get_number(const char *name, const char *path, const char *absent,
                       long *ret)
{
	char line[64], *end;
	long number;

	if (!get(name, path, absent, line, sizeof line))
		return false;
	number = strtol(line, &end, 10);
	if (end == line) {
		cli_finding(CLI_UNKNOWN, name, NULL, NULL,
		            "can't be determined: '%s' is not a number", line);
		return false;
	}
	*ret = number;
	return true;
}

/* Of "always [madvise] never" the word in brackets. */
static bool get_choice(const char *name, const char *path, char *ret,
                       size_t bytes)
{
	char line[128], *from, *to;

	if (!get(name, path, NULL, line, sizeof line))
		return false;
	from = strchr(line, '[');
	to = from == NULL ? NULL : strchr(from, ']');
	if (to == NULL) {
		cli_finding(CLI_UNKNOWN, name, NULL, NULL,
		            "can't be determined from '%s'", line);
		return false;
	}
	snprintf(ret, bytes, "%.*s", (int)(to - from - 1), from + 1);
	return true;
}

/* gVisor and emulators accept any advice for no bytes. Linux checks the advice first. */
static bool takes_any_advice(void)
{
	return madvise(NULL, 0, -1) == 0;
}

static void version(void)
{
	struct utsname name;

	if (uname(&name) < 0)
		cli_finding(CLI_UNKNOWN, "kernel", NULL, NULL,
		            "can't be determined: %s", strerror(errno));
	else
		cli_finding(CLI_OK, "kernel", NULL, NULL, "%s %s on %s",
		            name.sysname, name.release, name.machine);
	if (takes_any_advice())
		cli_finding(CLI_NOTE, "advice", NULL, NULL,
		            "the kernel accepts advice on memory that it does not know, as "
		            "gVisor and emulators do: cowshed can't rely on its answers, "
		            "makes no huge pages, and the shim may leave blocks to libc");
}

static void huge_pages(void)
{
	const char *name = "transparent_hugepage/enabled";
	char choice[32];

	if (!get_choice(name, HUGE "enabled", choice, sizeof choice))
		return;
	if (strcmp(choice, "never") == 0)
		cli_finding(CLI_NOTE, name,
		            "huge pages for blocks with anonymous backing",
		            "echo madvise | sudo tee " HUGE "enabled",
		            "never");
	else
		cli_finding(CLI_OK, name, NULL, NULL, "%s", choice);
}

/*
 * The library calls MADV_COLLAPSE for each huge page of a memfd. The kernel
 * refuses that call if this setting is `deny`, and ignores its other values.
 * If MADV_COLLAPSE is refused, the setting alone decides, when a page is first
 * touched. `advise` gives no huge page then: the library calls MADV_HUGEPAGE
 * for anonymous memory only.
 */
static bool gives_at_first_touch(const char *choice)
{
	return strcmp(choice, "always") == 0 ||
	       strcmp(choice, "within_size") == 0 ||
	       strcmp(choice, "force") == 0;
}

static bool knows_collapse(void)
{
	return !takes_any_advice() && madvise(NULL, 0, MADV_COLLAPSE) == 0;
}

static void shmem_denied(const char *name, const char *brings)
{
	cli_finding(CLI_NOTE, name, brings,
	            knows_collapse() ? "echo never | sudo tee " SHMEM
	                             : "echo within_size | sudo tee " SHMEM,
	            "deny: the kernel makes no huge pages for memfds, "
	            "not even when cowshed asks for them");
}

/* For kernels that refuse MADV_COLLAPSE. */
static void shmem_without_collapse(const char *name, const char *brings,
                                   const char *choice)
{
	long page = sysconf(_SC_PAGESIZE);

	if (gives_at_first_touch(choice))
		cli_finding(CLI_OK, name, NULL, NULL, "%s: the kernel makes a "
		            "huge page of a memfd at its first touch", choice);
	else if (page > 4096)
		cli_finding(CLI_NOTE, name, brings, "a kernel with pages of 4 KiB",
		            "%s: memfds get small pages, since the pages of this kernel "
		            "have %ld KiB, and a huge one more than 2 MiB",
		            choice, page / 1024);
	else if (knows_collapse())
		cli_finding(CLI_UNKNOWN, name, brings,
		            "echo 1 | sudo tee /proc/sys/vm/compact_memory",
		            "can't be determined: '%s' allows MADV_COLLAPSE, "
		            "but it failed; free memory may be in small pieces",
		            choice);
	else
		cli_finding(CLI_NOTE, name, brings,
		            "echo within_size | sudo tee " SHMEM,
		            "%s: the kernel refuses MADV_COLLAPSE, so memfds "
		            "get small pages, and before Linux 5.13 the shim "
		            "serves no blocks unless --threshold is set; with "
		            "within_size or always memfds get huge pages", choice);
}

static void shmem_huge_pages(void)
{
	const char *name = "transparent_hugepage/shmem_enabled";
	const char *brings = "huge pages for memfds";
	char choice[32];

	if (!get_choice(name, SHMEM, choice, sizeof choice))
		return;
	if (strcmp(choice, "deny") == 0)
		shmem_denied(name, brings);
	else if (cow_feature_probe(COW_FEATURE_COLLAPSE, NULL, NULL) <= 0)
		shmem_without_collapse(name, brings, choice);
	else if (strcmp(choice, "never") == 0)
		cli_finding(CLI_OK, name, NULL, NULL, "never, which is enough: "
		            "cowshed asks for each huge page itself");
	else
		cli_finding(CLI_OK, name, NULL, NULL, "%s", choice);
}

static void mapping_limit(void)
{
	const long usual = 65530;
	long limit;

	if (!get_number("vm.max_map_count", "/proc/sys/vm/max_map_count", NULL,
	                &limit))
		return;
	cli_finding(limit < usual ? CLI_NOTE : CLI_OK, "vm.max_map_count",
	            "more frozen and cloned pieces before copying begins",
	            "sudo sysctl -w vm.max_map_count=1048576",
	            "%ld%s", limit, limit < usual ? ", less than usual" : "");
}

static void overcommit(void)
{
	long mode;

	if (!get_number("vm.overcommit_memory",
	                "/proc/sys/vm/overcommit_memory", NULL, &mode))
		return;
	if (mode == 2)
		cli_finding(CLI_NOTE, "vm.overcommit_memory",
		            "forks and clones of large memory that the kernel "
		            "does not refuse",
		            "sudo sysctl -w vm.overcommit_memory=0",
		            "2: the kernel charges every private mapping in "
		            "full; it may refuse to freeze, and forks may copy "
		            "or fail");
	else
		cli_finding(CLI_OK, "vm.overcommit_memory", NULL, NULL, "%ld",
		            mode);
}

static void noexec(void)
{
	long mode;

	if (!get_number("vm.memfd_noexec", "/proc/sys/vm/memfd_noexec",
	                "this kernel does not have it; nothing to do", &mode))
		return;
	cli_finding(CLI_OK, "vm.memfd_noexec", NULL, NULL, "%ld%s", mode,
	            mode == 2 ? ": fine, memfds of cowshed are not executable"
	                      : "");
}

static void io_uring(void)
{
	long mode;

	if (!get_number("kernel.io_uring_disabled",
	                "/proc/sys/kernel/io_uring_disabled",
	                "this kernel does not have it; see io_uring above",
	                &mode))
		return;
	cli_finding(mode == 0 ? CLI_OK : CLI_NOTE, "kernel.io_uring_disabled",
	            "loading files, and saving past the page cache, several parts "
	            "at a time",
	            "sudo sysctl -w kernel.io_uring_disabled=0", "%ld%s", mode,
	            mode == 0 ? "" : mode == 1
	            ? ": for kernel.io_uring_group and root only"
	            : ": for no process");
}

static void userfaultfd(void)
{
	long mode;

	if (!get_number("vm.unprivileged_userfaultfd",
	                "/proc/sys/vm/unprivileged_userfaultfd",
	                "this kernel does not have it; see userfaultfd above",
	                &mode))
		return;
	cli_finding(CLI_OK, "vm.unprivileged_userfaultfd", NULL, NULL, "%ld%s",
	            mode, mode == 0 ? ", which is usual: cowshed watches faults of user mode "
	                              "only, which needs no privilege"
	                            : "");
}

void cli_doctor_kernel(void)
{
	version();
	huge_pages();
	shmem_huge_pages();
	mapping_limit();
	overcommit();
	noexec();
	io_uring();
	userfaultfd();
}
