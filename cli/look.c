/* SPDX-License-Identifier: MIT */
/*
 * What one process of a profiled program has and did
 *
 * Its mapped memory comes from smaps_rollup: the pages that it alone maps, and its part of
 * those that it shares ("proportional": the parts of all processes make the page once).
 * Frozen memory may be mapped by no process, so the blocks of memfds that go beyond the
 * mapped ones are added.
 *
 * What it did comes from its counters. They are added up by their growth since the last
 * look, so that the end of a process takes nothing away.
 */
#include "cli/profile.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_new(struct cli_look *look, const struct stat *facts)
{
	for (size_t i = 0; i < look->count; i++)
		if (look->seen[i].file == facts->st_ino &&
		    look->seen[i].device == facts->st_dev)
			return false;
	if (look->count == look->room) {
		size_t room = 2 * look->room + 64;
		struct cli_seen *larger = realloc(look->seen,
		                                  room * sizeof *larger);

		if (larger == NULL) {
			look->incomplete = true;
			return false;
		}
		look->seen = larger;
		look->room = room;
	}
	look->seen[look->count++] = (struct cli_seen){facts->st_dev,
	                                              facts->st_ino};
	return true;
}

/* Memory in memfds, whether it is mapped at the moment or not. */
static void add_files(pid_t pid, struct cli_look *look)
{
	static const char prefix[] = "/memfd:";
	char path[320], name[64];
	struct dirent *entry;
	struct stat facts;
	DIR *all;

	snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
	all = opendir(path);
	while (all != NULL && (entry = readdir(all)) != NULL) {
		ssize_t n;

		snprintf(path, sizeof path, "/proc/%ld/fd/%s", (long)pid,
		         entry->d_name);
		n = readlink(path, name, sizeof name);
		if (n < (ssize_t)sizeof prefix ||
		    memcmp(name, prefix, sizeof prefix - 1) != 0 ||
		    stat(path, &facts) < 0 || !is_new(look, &facts))
			continue;
		look->memfds += (uint64_t)facts.st_blocks * 512;
	}
	if (all != NULL)
		closedir(all);
}

/* Adds up the numbers of lines "Key: 12 kB". Returns whether the file was there. */
static bool read_sizes(pid_t pid, const char *file, const char *const *keys,
                       uint64_t *ret, size_t count)
{
	unsigned long long kib;
	char path[64], line[160];
	bool any = false;
	FILE *in;

	snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, file);
	in = fopen(path, "re");
	while (in != NULL && fgets(line, sizeof line, in) != NULL)
		for (size_t i = 0; i < count; i++) {
			size_t n = strlen(keys[i]);

			if (strncmp(line, keys[i], n) != 0 || line[n] != ':' ||
			    sscanf(line + n + 1, "%llu kB", &kib) != 1)
				continue;
			ret[i] += kib << 10;
			any = true;
		}
	if (in != NULL)
		fclose(in);
	return any;
}

static void add_mapped(pid_t pid, struct cli_look *look)
{
	static const char *const keys[] = {"Private_Clean", "Private_Dirty", "Pss",
	                                   "Pss_Shmem"};
	static const char *const anonymous[] = {"RssAnon"};
	uint64_t sizes[4] = {0}, alone, before = cli_now_ns();

	if (!read_sizes(pid, "smaps_rollup", keys, sizes, 4)) {
		/* Of another user, or without this file: the anonymous pages. */
		sizes[0] = 0;
		(void)read_sizes(pid, "status", anonymous, sizes, 1);
		look->sum.alone += sizes[0];
		return;
	}
	before = cli_now_ns() - before;
	if (look->sum.walk_ns < before)
		look->sum.walk_ns = before;
	alone = sizes[0] + sizes[1];
	look->sum.alone += alone;
	look->sum.shared += sizes[2] > alone ? sizes[2] - alone : 0;
	look->mapped += sizes[3];
}

/* How much a counter grew. One that fell began again: the process executed a program. */
static uint64_t growth(uint64_t now, uint64_t *before)
{
	uint64_t more = now >= *before ? now - *before : now;

	*before = now;
	return more;
}

static void add_counters(struct cli_look *look, struct cli_known *known)
{
	struct cow_stats stats = {.size = sizeof stats};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), forks, pause;

	if (cow_stats_read(known->pid, &stats) < 0)
		return;
	forks = growth(stats.forks, &known->forks);
	look->sum.copied += growth(stats.bytes_copied, &known->copied);
	/* This one falls, too: copied pages are freed, or become the file's. */
	if (stats.pages_private > known->pages)
		look->sum.copied += (stats.pages_private - known->pages) * page;
	known->pages = stats.pages_private;
	pause = stats.fork_ns_max > known->fork_ns_max ? stats.fork_ns_max
	                                               : stats.fork_ns_last;
	known->fork_ns_max = stats.fork_ns_max;
	look->sum.forks += forks;
	if (forks > 0 && look->sum.fork_ns < pause)
		look->sum.fork_ns = pause;
}

void cli_look_at(struct cli_look *look, struct cli_known *known)
{
	add_mapped(known->pid, look);
	add_files(known->pid, look);
	add_counters(look, known);
	look->sum.processes++;
}
