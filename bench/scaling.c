/* SPDX-License-Identifier: MIT */
/*
 * The growth of costs with storages, processes, threads and bytes
 *
 *      scaling storages COUNT        storages of a page: new, write, clone, free
 *      scaling shared COUNT          the same in a group's memory
 *      scaling processes COUNT       children at once of a process with 256 MiB
 *      scaling threads COUNT         so many threads clone one storage at once
 *      scaling bytes MIB             one block: fill, freeze, fork, free
 *
 * Each call is a process of its own, so it inherits nothing from the one before. It
 * prints one line, which bench/scaling.sh puts under a title. docs/scaling.md says what
 * follows from the figures. This program has no rivals; the other benchmarks have them.
 */
#include <cowshed-share.h>
#include <cowshed.h>

#include "bench/peer.h"

#include <pthread.h>

static long mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	long lines = 0;
	int c;

	if (maps == NULL)
		return -1;
	while ((c = getc(maps)) != EOF)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

static double each_ns(double t0, size_t count)
{
	return (now_ns() - t0) / (double)count;
}

static void storages(size_t count, bool shared)
{
	struct cow_storage **a = calloc(2 * count, sizeof(*a)), **b = a + count;
	long maps = mappings();
	int fds = descriptors();
	struct cow_group *group = NULL;
	double t0, made, cloned;
	void *p;

	if (a == NULL)
		die("no memory");
	if (shared)
		must(cow_group_new(&group));
	t0 = now_ns();
	for (size_t i = 0; i < count; i++) {
		must(shared ? cow_group_storage_new(group, PAGE, COW_SHARE_CLONE, &a[i]) :
		              cow_storage_new(PAGE, NULL, &a[i]));
		must(cow_storage_data_mut(a[i], &p));
		*(volatile char *)p = 1;
	}
	made = each_ns(t0, count);
	t0 = now_ns();
	for (size_t i = 0; i < count; i++)
		must(cow_storage_lazy_clone(a[i], &b[i]));
	cloned = each_ns(t0, count);
	maps = mappings() - maps;
	fds = descriptors() - fds;
	t0 = now_ns();
	for (size_t i = 0; i < 2 * count; i++)
		cow_storage_unref(a[i]);
	printf("count=%zu new_ns=%.0f clone_ns=%.0f free_ns=%.0f maps=%ld fds=%d\n", count, made,
	       cloned, each_ns(t0, count), maps, fds);
	cow_group_unref(group);
}

/* Written without a hint: the engine makes huge pages ahead of the writer. */
static struct cow_storage *written(size_t bytes, void **ret)
{
	struct cow_storage_options o = { .size = sizeof(o), .flags = COW_STORAGE_TRANSPARENT };
	struct cow_storage *s;

	must(cow_storage_new(bytes, &o, &s));
	must(cow_storage_data_mut(s, ret));
	memset(*ret, 1, bytes);
	return s;
}

/* Forks a child that waits until the pipe is closed; returns the microseconds of fork(). */
static double child(const int pipe_fds[2])
{
	double us = 0;
	char c;

	if (forked(&us) == 0) {
		close(pipe_fds[1]);
		while (read(pipe_fds[0], &c, 1) < 0)
			;
		_exit(0);
	}
	return us;
}

static void processes(size_t count)
{
	double first, last = 0, all, begin;
	struct cow_stats stats = { .size = sizeof stats };
	struct cow_storage *s;
	int fds[2];
	void *p;

	s = written(256 * MIB, &p);
	pipe_open(fds);
	begin = now_ns();
	first = child(fds);
	for (size_t i = 1; i < count; i++)
		last = child(fds);
	all = us_since(begin);
	begin = now_ns();
	for (size_t i = 0; i < 1000; i++)
		((volatile char *)p)[i * PAGE]++;
	begin = each_ns(begin, 1000);
	must(cow_stats_get(&stats));
	close(fds[1]);
	while (wait(NULL) > 0)
		;
	printf("count=%zu first_us=%.0f last_us=%.0f each_us=%.0f write_ns=%.0f slots=%llu\n",
	       count, first, last, all / (double)count, begin,
	       (unsigned long long)stats.fallbacks[COW_FALLBACK_SLOTS]);
	cow_storage_unref(s);
}

static void *cloner(void *storage)
{
	struct cow_storage *clone;

	for (int i = 0; i < 1000000; i++) {
		must(cow_storage_lazy_clone(storage, &clone));
		cow_storage_unref(clone);
	}
	return NULL;
}

static void threads(size_t count)
{
	pthread_t thread[64];
	struct cow_storage *s;
	double begin;

	if (count > 64)
		die("at most 64 threads");
	must(cow_storage_new(MIB, NULL, &s));
	begin = now_ns();
	for (size_t i = 0; i < count; i++)
		if (pthread_create(&thread[i], NULL, cloner, s) != 0)
			die("no thread");
	for (size_t i = 0; i < count; i++)
		pthread_join(thread[i], NULL);
	printf("count=%zu all_per_us=%.1f\n", count, (double)count / (us_since(begin) / 1e6));
	cow_storage_unref(s);
}

static void bytes(size_t mib)
{
	struct cow_storage *s, *clone;
	double t0 = now_ns(), filled, cloned, forked;
	int fds[2];
	void *p;

	s = written(mib * MIB, &p);
	filled = ms_since(t0);
	t0 = now_ns();
	must(cow_storage_lazy_clone(s, &clone));
	cloned = us_since(t0);
	cow_storage_unref(clone);
	pipe_open(fds);
	forked = child(fds);
	close(fds[1]);
	wait(NULL);
	t0 = now_ns();
	cow_storage_unref(s);
	cow_trim();
	printf("mib=%zu fill_ms=%.1f clone_us=%.0f fork_us=%.0f free_ms=%.1f\n", mib, filled,
	       cloned, forked, ms_since(t0));
}

int main(int argc, char **argv)
{
	const char *what = argc == 3 ? argv[1] : "";
	size_t count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;

	if (count == 0)
		die("usage: scaling storages|shared|processes|threads|bytes COUNT");
	if (strcmp(what, "storages") == 0)
		storages(count, false);
	else if (strcmp(what, "shared") == 0)
		storages(count, true);
	else if (strcmp(what, "processes") == 0)
		processes(count);
	else if (strcmp(what, "threads") == 0)
		threads(count);
	else if (strcmp(what, "bytes") == 0)
		bytes(count);
	else
		die("there is no measurement of this name: %s", what);
	return 0;
}
