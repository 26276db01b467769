/* SPDX-License-Identifier: MIT */
/*
 * Test support: what the process holds, by the kernel's account
 *
 * A library that says "everything is free" proves little. The kernel says it
 * too, in /proc: which descriptors are open, which lines of the address space
 * lie on a memfd of ours, how many pages each memfd has. A memfd that is open
 * keeps its pages whether or not they are mapped, which resident set sizes do
 * not show; st_blocks does.
 *
 * Threads may have a table of descriptors of their own, so memfds are looked
 * for in the tables of all of them.
 */
#include "tests/support/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEMFDS_MAX = 4096 };

static long count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	long count = -1; /* the directory itself */

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

static long count_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	long count = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps) != NULL)
		count += strstr(line, "memfd:cowshed") != NULL;
	fclose(maps);
	return count;
}

struct footprint footprint_now(void)
{
	struct cow_stats stats = stats_now();
	struct footprint now = {
		.fds = count_fds(),
		.maps = count_maps(),
		.memory = memfd_bytes(),
		.uncounted = stats.fallbacks[COW_FALLBACK_SLOTS],
		.bytes_live = stats.bytes_live,
		.blocks_live = stats.blocks_live,
		.storages_live = stats.storages_live,
	};

	return now;
}

struct seen {
	ino_t inodes[MEMFDS_MAX];
	int count;
	void (*visit)(int fd, const char *name, void *arg);
	void *arg;
};

static bool is_new(struct seen *seen, int fd)
{
	struct stat status;
	int i;

	if (fstat(fd, &status) != 0 || seen->count == MEMFDS_MAX)
		return false;
	for (i = 0; i < seen->count; i++)
		if (seen->inodes[i] == status.st_ino)
			return false;
	seen->inodes[seen->count++] = status.st_ino;
	return true;
}

static void visit_table(struct seen *seen, const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char path[600], name[256];
	ssize_t n;
	int fd;

	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		n = readlink(path, name, sizeof(name) - 1);
		if (n < 0)
			continue;
		name[n] = '\0';
		if (strncmp(name, "/memfd:cowshed", 14) != 0)
			continue;
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (is_new(seen, fd) && seen->visit != NULL)
			seen->visit(fd, name + 7, seen->arg);
		close(fd);
	}
	closedir(dir);
}

int each_memfd(void (*visit)(int fd, const char *name, void *arg), void *arg)
{
	static struct seen seen;
	struct dirent *entry;
	char folder[300];
	DIR *tasks;

	seen.count = 0;
	seen.visit = visit;
	seen.arg = arg;
	tasks = opendir("/proc/self/task");
	ck_assert_ptr_nonnull(tasks);
	while ((entry = readdir(tasks)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(folder, sizeof(folder), "/proc/self/task/%s/fd",
		         entry->d_name);
		visit_table(&seen, folder);
	}
	closedir(tasks);
	return seen.count;
}

static void add_blocks(int fd, const char *name, void *arg)
{
	uint64_t *bytes = arg;
	struct stat status;

	(void)name;
	if (fstat(fd, &status) == 0)
		*bytes += (uint64_t)status.st_blocks * 512;
}

uint64_t memfd_bytes(void)
{
	uint64_t bytes = 0;

	each_memfd(add_blocks, &bytes);
	return bytes;
}

uint64_t memory_held(void)
{
	unsigned long long kib, anonymous = 0;
	char line[256];
	FILE *rollup;

	/* A sanitizer's shadow is anonymous, and grows with what it watches. */
	if (SANITIZED)
		return memfd_bytes();
	rollup = fopen("/proc/self/smaps_rollup", "re");
	ck_assert_ptr_nonnull(rollup);
	while (fgets(line, sizeof(line), rollup) != NULL)
		if (sscanf(line, "Anonymous: %llu kB", &kib) == 1)
			anonymous = kib * 1024;
	fclose(rollup);
	return memfd_bytes() + anonymous;
}

bool memory_granted(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p != MAP_FAILED && munmap(p, bytes) == 0;
}

bool mapped_shared(const void *address)
{
	char line[512], flags[8] = "";
	FILE *f = fopen("/proc/self/maps", "r");
	uintptr_t from, to;
	bool shared = false;

	must(f != NULL);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &from, &to, flags) == 3 &&
		    (uintptr_t)address >= from && (uintptr_t)address < to)
			shared = flags[3] == 's';
	fclose(f);
	return shared;
}

unsigned mappings_between(unsigned char *const *p, unsigned n, size_t bytes)
{
	uintptr_t first = UINTPTR_MAX, last = 0, from, to;
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned count = 0;
	char line[512];

	must(f != NULL);
	for (unsigned i = 0; i < n; i++) {
		first = (uintptr_t)p[i] < first ? (uintptr_t)p[i] : first;
		last = (uintptr_t)p[i] > last ? (uintptr_t)p[i] : last;
	}
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2 &&
		    from < last + bytes && to > first)
			count++;
	fclose(f);
	return count;
}

bool page_tables_move(void)
{
	enum { DONTUNMAP = 4 };
	char *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *to;

	must(p != MAP_FAILED);
	to = mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | DONTUNMAP, NULL);
	munmap(p, PAGE);
	if (to != MAP_FAILED)
		munmap(to, PAGE);
	return to != MAP_FAILED;
}

struct rlimit descriptors_raise(void)
{
	struct rlimit own, raised;

	must(getrlimit(RLIMIT_NOFILE, &own) == 0);
	raised = own;
	raised.rlim_cur = raised.rlim_max;
	must(setrlimit(RLIMIT_NOFILE, &raised) == 0);
	return own;
}
