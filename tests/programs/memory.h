/* SPDX-License-Identifier: MIT */
/*
 * The memory and descriptors of a process, as it sees them itself
 *
 * An allocator may keep memory in memfds. Without one there are none, and their
 * bytes are 0.
 */
#ifndef COWSHED_TESTS_MEMORY_H
#define COWSHED_TESTS_MEMORY_H

#include "program.h"

#include <dirent.h>
#include <sys/stat.h>

struct held {
	size_t descriptors, mappings; /* numbers of them */
	size_t memfd, anonymous;      /* bytes of pages */
};

static inline struct held held_now(void)
{
	struct held held = { 0, 0, 0, 0 };
	const struct dirent *e;
	char path[64], line[512];
	size_t kib;
	struct stat st;
	FILE *file;
	DIR *dir = opendir("/proc/self/fd");

	check(dir != NULL);
	while ((e = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "/proc/self/fd/%.20s", e->d_name);
		memset(line, 0, sizeof(line));
		if (readlink(path, line, sizeof(line) - 1) <= 0)
			continue;
		held.descriptors++;
		if (strncmp(line, "/memfd:", 7) == 0 && stat(path, &st) == 0)
			held.memfd += (size_t)st.st_blocks * 512;
	}
	closedir(dir);
	file = fopen("/proc/self/maps", "re");
	check(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL)
		held.mappings++;
	fclose(file);
	file = fopen("/proc/self/status", "re");
	check(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "RssAnon: %zu", &kib) == 1)
			held.anonymous = kib * KIB;
	fclose(file);
	return held;
}

#endif
