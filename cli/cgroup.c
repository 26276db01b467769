/* SPDX-License-Identifier: MIT */
/*
 * doctor: the memory limit of the control group
 *
 * A process is in a group and in all groups above it. Each may have a limit;
 * the group with the least headroom counts. /proc/self/cgroup has our path, which
 * is relative to the mount point in /sys/fs/cgroup. Version 2 has one hierarchy
 * ("0::/path"); version 1 has one for memory ("9:memory:/path"). In a container
 * the path may be relative to a root that we can't see. Limits above it stay
 * unknown, and doctor says so.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hierarchy {
	const char *mount;
	const char *limit;
	const char *usage;
};

static const struct hierarchy version1 = {
	"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	"memory.usage_in_bytes",
};
static const struct hierarchy version2 = {
	"/sys/fs/cgroup", "memory.max", "memory.current",
};

struct room {
	bool limited;
	uint64_t limit;    /* of the group with the least room */
	uint64_t headroom;
	int read;          /* groups whose limit could be read */
};

/* -errno; 1 if the file says "max". */
static int read_number(const char *directory, const char *file, uint64_t *ret)
{
	char path[PATH_MAX + 64], line[64], *end;
	uint64_t number;
	int r;

	snprintf(path, sizeof path, "%s/%s", directory, file);
	r = cli_read_line(path, line, sizeof line);
	if (r < 0)
		return r;
	if (strcmp(line, "max") == 0)
		return 1;
	number = strtoull(line, &end, 10);
	if (end == line)
		return -EINVAL;
	*ret = number;
	return 0;
}

static void read_limit(const char *directory, const struct hierarchy *h,
                       struct room *room)
{
	uint64_t limit = 0, usage = 0, headroom;
	int r = read_number(directory, h->limit, &limit);

	if (r < 0)
		return;
	room->read++;
	/* Version 1 has no "max", but a number larger than any memory. */
	if (r == 1 || limit >= UINT64_C(1) << 60)
		return;
	if (read_number(directory, h->usage, &usage) != 0)
		return;
	headroom = limit > usage ? limit - usage : 0;
	if (room->limited && headroom >= room->headroom)
		return;
	room->limited = true;
	room->limit = limit;
	room->headroom = headroom;
}

/* Our path in the hierarchy of memory. -errno. */
static int find_group(char ret[PATH_MAX], const struct hierarchy **ret_which)
{
	FILE *in = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX];
	int r = -ENOENT;

	if (in == NULL)
		return -errno;
	while (fgets(line, sizeof line, in) != NULL) {
		char *controllers = strchr(line, ':');
		char *path = controllers == NULL ? NULL
		                                 : strchr(controllers + 1, ':');

		if (path == NULL)
			continue;
		line[strcspn(line, "\n")] = 0;
		*path++ = 0;
		if (strcmp(controllers + 1, "memory") == 0) {
			*ret_which = &version1;
		} else if (controllers[1] == 0 && r != 0) {
			*ret_which = &version2;
		} else {
			continue;
		}
		strcpy(ret, path);
		r = 0;
		if (*ret_which == &version1)
			break;
	}
	fclose(in);
	return r;
}

/* From our group up to the mount point. */
static void climb(const char *path, const struct hierarchy *h,
                  struct room *room)
{
	char directory[2 * PATH_MAX];
	size_t top = strlen(h->mount);

	snprintf(directory, sizeof directory, "%s%s", h->mount, path);
	for (;;) {
		size_t length = strlen(directory);
		char *slash;

		if (length > top && directory[length - 1] == '/')
			directory[length - 1] = 0;
		read_limit(directory, h, room);
		slash = strrchr(directory, '/');
		if (strlen(directory) <= top || slash == NULL)
			return;
		*slash = 0;
	}
}

void cli_doctor_cgroup(void)
{
	static const char brings[] =
		"room for warm memory, which makes new blocks fast";
	const uint64_t little = UINT64_C(256) << 20;
	const struct hierarchy *which = &version2;
	struct room room = {0};
	char path[PATH_MAX];
	int r = find_group(path, &which);

	if (r < 0) {
		cli_finding(CLI_UNKNOWN, "cgroup memory", NULL, NULL,
		            "can't be determined: /proc/self/cgroup: %s",
		            strerror(-r));
		return;
	}
	climb(path, which, &room);
	if (room.limited)
		cli_finding(room.headroom < little ? CLI_NOTE : CLI_OK,
		            "cgroup memory", brings,
		            "raise memory.max of the group (docker run -m, "
		            "systemd MemoryMax=)", "limit %s, headroom %s%s",
		            cli_bytes(room.limit).s,
		            cli_bytes(room.headroom).s,
		            room.headroom < little ? ": little" : "");
	else if (room.read > 0)
		cli_finding(CLI_OK, "cgroup memory", NULL, NULL,
		            "no limit in the groups that can be seen");
	else if (strcmp(path, "/") == 0 && access(which->mount, X_OK) == 0)
		cli_finding(CLI_OK, "cgroup memory", NULL, NULL,
		            "in the root group, or in one whose limit can't "
		            "be seen here");
	else
		cli_finding(CLI_UNKNOWN, "cgroup memory", NULL, NULL,
		            "can't be determined: there is no %s of %s in %s",
		            which->limit, path, which->mount);
}
