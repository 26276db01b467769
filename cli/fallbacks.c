/* SPDX-License-Identifier: MIT */
/*
 * Every fallback: what it means, and what to change
 *
 * If something is denied, the library does not fail. It takes a slower way and
 * counts it (enum cow_fallback). This file explains each count in a sentence,
 * and says what a user can change. A fallback without a change is the right
 * way there, only slower than copy-on-write.
 */
#include "cli/cli.h"

#include <string.h>

struct advice {
	const char *means;
	const char *change; /* NULL: nothing, this is as it should be */
};

static const struct advice advices[COW_FALLBACKS] = {
	[COW_FALLBACK_MEMFD] = {
		"there was no memfd for the memory: it is anonymous, it can't "
		"be shared, and forks copy its page tables",
		"run 'cowshed doctor'; the cause may be a seccomp profile "
		"without memfd_create, ulimit -n or ulimit -f"},
	[COW_FALLBACK_WINDOW] = {
		"the reserved address range was full, or could not be "
		"reserved: another allocator gave the memory",
		"ulimit -v unlimited"},
	[COW_FALLBACK_COLLAPSE] = {
		"the kernel refused huge pages: the first touch of each "
		"4 KiB is a page fault",
		"echo 1 | sudo tee /proc/sys/vm/compact_memory (if free "
		"memory is in small pieces), or run 'cowshed doctor'"},
	[COW_FALLBACK_PAGEMAP] = {
		"cowshed could not read /proc/self/pagemap: it does not know "
		"which pages were written, and copies whole blocks",
		"ulimit -n 1024, if it is 64 or less; else mount -t proc proc "
		"/proc, in the container or chroot"},
	[COW_FALLBACK_THREAD] = {
		"the helper thread could not be started: malloc and free do "
		"its work",
		"raise ulimit -u, or pids.max of the cgroup"},
	[COW_FALLBACK_DESCRIPTOR] = {
		"the program closed or reused a descriptor of cowshed: the "
		"memory stays, but is copied instead of shared", NULL},
	[COW_FALLBACK_MAPPINGS] = {
		"the process was near its limit of mappings: cowshed copied "
		"instead of splitting mappings",
		"sudo sysctl -w vm.max_map_count=1048576"},
	[COW_FALLBACK_SEGMENTS] = {
		"32 segments were open, for children may still map them: "
		"cowshed made no new one",
		"let children exec or exit sooner"},
	[COW_FALLBACK_FREEZE] = {
		"memory could not be frozen: the child got a copy",
		"sudo sysctl -w vm.overcommit_memory=0 (if it is 2), or "
		"vm.max_map_count=1048576"},
	[COW_FALLBACK_PINNED] = {
		"the kernel or a device may do I/O in the memory (io_uring, "
		"AIO, RDMA, GPU): it is copied, so that no I/O is lost", NULL},
	[COW_FALLBACK_SLOTS] = {
		"more than 61 related processes lived at once: they never "
		"take pages over in place",
		"fewer workers that live at the same time"},
	[COW_FALLBACK_FOREIGN] = {
		"clones of memory that cowshed did not allocate are copies",
		"allocate it with cow_storage_new(), or under the shim"},
	[COW_FALLBACK_SMALL] = {
		"clones of small blocks are copies, which cost less than "
		"mappings", NULL},
	[COW_FALLBACK_ELEMENTS] = {
		"clones of elements with hooks run the hooks", NULL},
	[COW_FALLBACK_BUSY] = {
		"frozen memory stayed frozen for a while, because a thread was "
		"running: every page written costs a copy",
		"if the program forks often, rewrites its memory and never "
		"rests: cowshed run -o quiet=signal, or --backing anon"},
	[COW_FALLBACK_HELD] = {
		"frozen memory stayed frozen, because another process still "
		"maps it", "let children exec or exit sooner"},
	[COW_FALLBACK_BACKING] = {
		"blocks were given anonymous memory by policy",
		"cowshed run --backing memfd"},
	[COW_FALLBACK_REMAPPED] = {
		"the program remapped part of a block itself", NULL},
	[COW_FALLBACK_REWRITTEN] = {
		"most of a block was rewritten after it was cloned: the next "
		"clones were copies",
		"if it is cloned again and again: announce each rewrite, by "
		"cow_write_intent() or Python's write_intent()"},
	[COW_FALLBACK_BLOCKED] = {
		"frozen memory stayed frozen, because a thread waited in a "
		"call that cowshed does not know as a safe point", NULL},
	[COW_FALLBACK_HANDLER] = {
		"frozen memory stayed frozen, because a signal handler was set "
		"by a system call, past libc", NULL},
	[COW_FALLBACK_STACK] = {
		"frozen memory stayed frozen, because a stack lies in a block",
		NULL},
	[COW_FALLBACK_CANCEL] = {
		"frozen memory stayed frozen, because a thread was being "
		"cancelled", NULL},
	[COW_FALLBACK_PROCESS] = {
		"frozen memory stayed frozen, because another process shares "
		"the address space", NULL},
};

const char *cli_fallback_name(int reason)
{
	const char *name = cow_fallback_name((enum cow_fallback)reason);

	return name != NULL && *name != 0 ? name : "unnamed";
}

uint64_t cli_fallbacks_total(const struct cow_stats *stats)
{
	uint64_t total = 0;

	for (int i = 0; i < COW_FALLBACKS; i++)
		total += stats->fallbacks[i];
	return total;
}

void cli_fallback_advice(int reason, const char **ret_means, const char **ret_change)
{
	const struct advice *advice = &advices[reason];

	*ret_means = advice->means != NULL ? advice->means :
	             "the library is newer than this command, which does not know "
	             "this count";
	*ret_change = advice->change;
}

static void print_one(FILE *out, int reason, uint64_t count)
{
	const char *means, *change;

	cli_fallback_advice(reason, &means, &change);

	fprintf(out, "  %12s  %-12s ", cli_count(count).s,
	        cli_fallback_name(reason));
	cli_wrap(out, 29, means);
	if (change == NULL)
		return;
	fprintf(out, "%29sto change: ", "");
	cli_wrap(out, 40, change);
}

void cli_fallbacks_print(FILE *out, const struct cow_stats *stats)
{
	for (int i = 0; i < COW_FALLBACKS; i++)
		if (stats->fallbacks[i] != 0)
			print_one(out, i, stats->fallbacks[i]);
}
