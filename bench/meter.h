/* SPDX-License-Identifier: MIT */
/*
 * Meter: memory that a fresh cgroup is charged
 *
 * A benchmark makes a group, puts a process in, and reads what the kernel charges it
 * for: page tables, pages of memfds that nobody maps, and children included. Both
 * versions of cgroups are known. Where no group can be made, or a process can't be
 * put into it, the meter falls back to how much the whole system's use grew, and
 * meter_by() says so: no bar may be judged by that.
 */
#ifndef BENCH_METER_H
#define BENCH_METER_H

#include "bench/common.h"

struct meter {
	char dir[512];    /* of the fresh cgroup; "" if there is none */
	char parent[512]; /* where the process was */
	bool v2;
	double before;    /* of the whole system, where there is no cgroup */
};

static inline int file_put(const char *dir, const char *name, const char *text)
{
	char path[600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	if (!f)
		return -1;
	fputs(text, f);
	return fclose(f) ? -1 : 0;
}

static inline double system_used(void)
{
	return file_kb("/proc/meminfo", "AnonPages") +
	       file_kb("/proc/meminfo", "Shmem");
}

/* Where this process is in the memory hierarchy. Both versions are looked at:
 * a hybrid system has memory in v1 and an empty v2 beside it. */
static inline bool meter_parent(struct meter *m)
{
	char line[400];
	FILE *f = fopen("/proc/self/cgroup", "re");
	bool found = false;

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		char *name = strchr(line, ':'), *path;

		line[strcspn(line, "\n")] = 0;
		if (!name || !(path = strchr(name + 1, ':')))
			continue;
		*path++ = 0;
		if (!strcmp(name + 1, "memory")) {
			snprintf(m->parent, sizeof(m->parent),
			         "/sys/fs/cgroup/memory%s", path);
			m->v2 = false;
			found = true;
			break;
		}
		if (!name[1]) {
			snprintf(m->parent, sizeof(m->parent),
			         "/sys/fs/cgroup%s", path);
			m->v2 = true;
			found = true;
		}
	}
	fclose(f);
	return found;
}

/* A fresh cgroup beside nothing; nobody is in it yet. */
static inline void meter_open(struct meter *m)
{
	static int serial;

	memset(m, 0, sizeof(*m));
	m->before = system_used();
	if (!meter_parent(m))
		return;
	/* v2 keeps processes out of inner groups: be a sibling there. */
	if (m->v2 && strcmp(m->parent, "/sys/fs/cgroup/")) {
		char *slash = strrchr(m->parent, '/');

		snprintf(m->dir, sizeof(m->dir), "%.*s/cowshed-bench.%d.%d",
		         (int)(slash - m->parent), m->parent, (int)getpid(),
		         serial++);
	} else {
		snprintf(m->dir, sizeof(m->dir), "%.440s/cowshed-bench.%d.%d",
		         m->parent, (int)getpid(), serial++);
	}
	if (mkdir(m->dir, 0755) ||
	    file_number(m->dir, m->v2 ? "memory.current" :
	                                "memory.usage_in_bytes") < 0) {
		rmdir(m->dir);
		m->dir[0] = 0;
	}
}

/* A process goes in, and its children to come. False: there is no cgroup, or no
 * longer, for it was refused. */
static inline bool meter_put(struct meter *m, pid_t process)
{
	char pid[32];

	if (!m->dir[0])
		return false;
	snprintf(pid, sizeof(pid), "%d", (int)process);
	if (!file_put(m->dir, "cgroup.procs", pid))
		return true;
	rmdir(m->dir);
	m->dir[0] = 0;
	return false;
}

/* What memory is measured by, as a line says it. */
static inline const char *meter_by(const struct meter *m)
{
	return m->dir[0] ? "cgroup" : "system";
}

/* Bytes charged now. Without a cgroup: by how much the system's use grew. */
static inline double meter_now(const struct meter *m)
{
	if (!m->dir[0])
		return system_used() - m->before;
	return file_number(m->dir, m->v2 ? "memory.current" :
	                                   "memory.usage_in_bytes");
}

/* Bytes charged now without the pages of files on disks; -1: unknown. */
static inline double meter_own(const struct meter *m)
{
	double charged, files = 0, value;
	char path[600], name[64];
	FILE *f;

	if (!m->dir[0])
		return -1;
	charged = meter_now(m);
	snprintf(path, sizeof(path), "%s/memory.stat", m->dir);
	f = fopen(path, "re");
	if (!f)
		return -1;
	/* Shared memory is a part of what the kernel calls cache, or file. */
	while (fscanf(f, "%63s %lf", name, &value) == 2)
		if (!strcmp(name, m->v2 ? "file" : "cache"))
			files += value;
		else if (!strcmp(name, "shmem"))
			files -= value;
	fclose(f);
	return charged < 0 ? -1 : charged - files;
}

/* The most that was ever charged; -1: unknown. */
static inline double meter_peak(const struct meter *m)
{
	if (!m->dir[0])
		return -1;
	return file_number(m->dir, m->v2 ? "memory.peak" :
	                                   "memory.max_usage_in_bytes");
}

/* Everybody must have left or died; a caller that joined goes back. */
static inline void meter_close(struct meter *m)
{
	char pid[32];

	if (!m->dir[0])
		return;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	file_put(m->parent, "cgroup.procs", pid);
	for (int i = 0; rmdir(m->dir) && errno == EBUSY && i < 200; i++)
		sleep_ms(10);
	m->dir[0] = 0;
}

#endif
