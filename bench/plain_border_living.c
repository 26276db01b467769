/* SPDX-License-Identifier: MIT */
/*
 * Children that live long, forked beside allocations
 *
 *      plain_border_living [-b BLOCK] [-t TOTAL] [-n CHILDREN] [-s SECONDS] [-k] [-H]
 *
 * It stands for a program that forks a child of an hour each second: CHILDREN children,
 * one after another, all of which live until the end. The program has TOTAL bytes in
 * blocks that it does not change. Before each fork it also makes and writes a new block
 * of 1 to 4 MiB, and it frees the one that is eight forks old. The children drop; with -k
 * they keep their privileges.
 *
 * It prints what the parent has after half of the forks and after all of them: descriptors,
 * descriptors of memfds, mappings, and different memfds that it maps or has open. Then come
 * the memory of all processes SECONDS later, and the median fork of the last tenth.
 */
#include "bench/border.h"

#include <dirent.h>

enum { RECENT = 8, FILES = 65536 };
static int children = 600;

struct counts {
	int fds, memfds, maps, files;
};

static unsigned long inodes[FILES];
static int inode_count;

static void inode_add(unsigned long inode)
{
	for (int i = 0; i < inode_count; i++)
		if (inodes[i] == inode)
			return;
	if (inode_count < FILES)
		inodes[inode_count++] = inode;
}

static void count_descriptors(struct counts *n)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char target[300] = "";
		struct stat st;

		if (e->d_name[0] == '.' || atoi(e->d_name) == dirfd(d))
			continue;
		n->fds++;
		if (readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1) <= 0 ||
		    strncmp(target, "/memfd:", 7) || fstat(atoi(e->d_name), &st))
			continue;
		n->memfds++;
		inode_add(st.st_ino);
	}
	if (d)
		closedir(d);
}

static void count_mappings(struct counts *n)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long inode;
	char line[600];

	while (f && fgets(line, sizeof(line), f)) {
		n->maps++;
		if (strstr(line, "/memfd:") &&
		    sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1)
			inode_add(inode);
	}
	if (f)
		fclose(f);
}

static struct counts count(void)
{
	struct counts n = { 0, 0, 0, 0 };

	inode_count = 0;
	count_descriptors(&n);
	count_mappings(&n);
	n.files = inode_count;
	return n;
}

static void counts_print(const char *when, const struct counts *n)
{
	printf("%s_fds=%d %s_memfds=%d %s_maps=%d %s_files=%d ", when, n->fds, when,
	       n->memfds, when, n->maps, when, n->files);
}

static void run(pid_t *pids)
{
	struct counts half = { 0, 0, 0, 0 };
	char *recent[RECENT] = { NULL };
	struct series late = { { 0 }, 0 };

	for (int i = 0; i < children; i++) {
		double us;

		free(recent[i % RECENT]);
		recent[i % RECENT] = block_of((1 + (size_t)i * 7 % 4) * MIB, huge, 2);
		us = worker_start(&pids[i], !given['k'], 1);
		if (i >= children - children / 10)
			series_add(&late, us);
		if (i == children / 2)
			half = count();
	}
	counts_print("half", &half);
	half = count();
	counts_print("end", &half);
	sleep_ms((long)(seconds * 1000));
	printf("memory_mib=%.2f late_us=%.2f", charge_mib(), series_median(&late));
	print_drop();
}

int main(int argc, char **argv)
{
	pid_t *pids;

	options(argc, argv, &children);
	blocks_fill(1);
	pids = calloc((size_t)children, sizeof(*pids));
	if (!pids)
		die("no memory");
	run(pids);
	workers_end(pids, children);
	return 0;
}
