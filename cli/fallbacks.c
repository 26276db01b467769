/* SPDX-License-Identifier: MIT */
/*
 * Every slow way: what it means, and what to change
 *
 * The library never fails because something is denied; it does without and
 * counts (enum cow_fallback). A number alone helps nobody, so here is a
 * sentence for each, and, where a person can do something, what. Some need no
 * change: they are the right thing, merely slower than what the name of the
 * product promises.
 */
#include "cli/cli.h"

#include <string.h>

struct advice {
	const char *means;
	const char *change; /* NULL: nothing, this is as it should be */
};

static const struct advice advices[COW_FALLBACKS] = {
	[COW_FALLBACK_MEMFD] = {
		"no memfd could be made: the memory is anonymous, can't be "
		"shared, and forks copy its page tables",
		"see 'cowshed doctor': a seccomp profile without "
		"memfd_create, ulimit -n or ulimit -f"},
	[COW_FALLBACK_WINDOW] = {
		"the reserved address range was full or could not be had: "
		"another allocator served",
		"ulimit -v unlimited"},
	[COW_FALLBACK_COLLAPSE] = {
		"the kernel refused huge pages: first touches fault every "
		"4 KiB",
		"echo 1 | sudo tee /proc/sys/vm/compact_memory (free memory "
		"is in small pieces), or see 'cowshed doctor'"},
	[COW_FALLBACK_PAGEMAP] = {
		"/proc/self/pagemap can't be read: which pages were written "
		"is unknown, so whole blocks are copied",
		"mount -t proc proc /proc, in the container or chroot"},
	[COW_FALLBACK_THREAD] = {
		"the helper thread could not be started: its work is done "
		"inside malloc and free",
		"raise ulimit -u, or pids.max of the cgroup"},
	[COW_FALLBACK_DESCRIPTOR] = {
		"the program closed or reused a descriptor of cowshed's: its "
		"memory stays, but is copied where it would be shared", NULL},
	[COW_FALLBACK_MAPPINGS] = {
		"near the limit of mappings: copied instead of split",
		"sudo sysctl -w vm.max_map_count=1048576"},
	[COW_FALLBACK_SEGMENTS] = {
		"too many descriptors open: no new segment was made",
		"ulimit -n 4096"},
	[COW_FALLBACK_FREEZE] = {
		"a freeze was refused: the child got a copy",
		"sudo sysctl -w vm.overcommit_memory=0 (if it is 2), or "
		"vm.max_map_count=1048576"},
	[COW_FALLBACK_PINNED] = {
		"memory that may be under kernel or device I/O (io_uring, "
		"AIO, RDMA, GPU) is copied, for no I/O may be lost", NULL},
	[COW_FALLBACK_SLOTS] = {
		"more than 63 related processes at once: their pages are "
		"never taken over in place",
		"fewer workers that live at the same time"},
	[COW_FALLBACK_FOREIGN] = {
		"clones of memory that cowshed did not allocate are copies",
		"allocate it with cow_storage_new(), or under the shim"},
	[COW_FALLBACK_SMALL] = {
		"clones of small blocks are copies: cheaper than mappings",
		NULL},
	[COW_FALLBACK_ELEMENTS] = {
		"clones of elements with hooks run the hooks", NULL},
	[COW_FALLBACK_BUSY] = {
		"frozen memory was left frozen, for other threads may have "
		"been writing: every page written costs a copy",
		"if it forks often and rewrites its memory: "
		"cowshed run --backing anon"},
	[COW_FALLBACK_HELD] = {
		"frozen memory was left frozen, for another process still "
		"maps it", "let children exec or exit sooner"},
	[COW_FALLBACK_BACKING] = {
		"blocks were given anonymous memory by policy",
		"cowshed run --backing memfd"},
	[COW_FALLBACK_REMAPPED] = {
		"the program remapped part of a block itself", NULL},
	[COW_FALLBACK_REWRITTEN] = {
		"clones of what was mostly rewritten beside an earlier clone "
		"were copies", NULL},
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

static void print_one(FILE *out, int reason, uint64_t count)
{
	const struct advice *advice = &advices[reason];

	fprintf(out, "  %12s  %-12s ", cli_count(count).s,
	        cli_fallback_name(reason));
	cli_wrap(out, 29, advice->means != NULL ? advice->means :
	         "this command is older than the library and can't explain");
	if (advice->change == NULL)
		return;
	fprintf(out, "%29sto change: ", "");
	cli_wrap(out, 40, advice->change);
}

void cli_fallbacks_print(FILE *out, const struct cow_stats *stats)
{
	for (int i = 0; i < COW_FALLBACKS; i++)
		if (stats->fallbacks[i] != 0)
			print_one(out, i, stats->fallbacks[i]);
}
