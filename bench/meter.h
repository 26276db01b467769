/* SPDX-License-Identifier: MIT */
/*
 * Meter: memory that a fresh cgroup is charged
 *
 * A benchmark makes a cgroup, puts a process into it, and reads what the kernel charges
 * to it. That includes page tables, pages of memfds that no process maps, and children.
 * The meter knows both versions of cgroups. If the kernel refuses the cgroup, or refuses
 * to put a process into it, the meter takes the growth of the whole system's use.
 * meter_by() says so then; no bar may be judged by that.
 */
#ifndef BENCH_METER_H
#define BENCH_METER_H

#include "bench/common.h"

struct meter {
	char dir[512];    /* of the fresh cgroup; "" if there is none */
	char parent[512]; /* the cgroup in which the process was */
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

/* Finds the cgroup of this process in the memory hierarchy. It looks at both versions:
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

/* Makes a fresh cgroup, without a process in it. */
static inline void meter_open(struct meter *m)
{
	static int serial;

	memset(m, 0, sizeof(*m));
	m->before = system_used();
	if (!meter_parent(m))
		return;
	/* v2 allows no process in an inner group, so this one is a sibling there. */
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

/* Puts a process into the cgroup; its later children are in it, too. False if there is
 * no cgroup, or if the kernel refused the process: then the cgroup is removed. */
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

/* How memory is measured, as the by= of a line says it. */
static inline const char *meter_by(const struct meter *m)
{
	return m->dir[0] ? "cgroup" : "system";
}

/* Bytes that are charged; without a cgroup, the growth of the system's use. */
static inline double meter_now(const struct meter *m)
{
	if (!m->dir[0])
		return system_used() - m->before;
	return file_number(m->dir, m->v2 ? "memory.current" :
	                                   "memory.usage_in_bytes");
}

/* Bytes that are charged without the pages of files on disks; -1 if unknown. */
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
	/* The kernel counts shared memory in "cache" (v1) or "file" (v2), too. */
	while (fscanf(f, "%63s %lf", name, &value) == 2)
		if (!strcmp(name, m->v2 ? "file" : "cache"))
			files += value;
		else if (!strcmp(name, "shmem"))
			files -= value;
	fclose(f);
	return charged < 0 ? -1 : charged - files;
}

/* The peak of what was charged; -1 if unknown. */
static inline double meter_peak(const struct meter *m)
{
	if (!m->dir[0])
		return -1;
	return file_number(m->dir, m->v2 ? "memory.peak" :
	                                   "memory.max_usage_in_bytes");
}

/* Removes the cgroup. Its processes must have left or died; the caller goes back to the
 * cgroup in which it was. */
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
