/* SPDX-License-Identifier: MIT */
/*
 * Other processes, seen from outside
 *
 * The counters of a process lie in a page that other processes may map;
 * cow_stats_read() reads it. This file finds the processes: /proc has a
 * directory for each, named by its number. A process that ends meanwhile is
 * not an error.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void read_name(pid_t pid, char *ret, size_t bytes)
{
	char path[64], line[64];

	snprintf(path, sizeof path, "/proc/%ld/comm", (long)pid);
	if (cli_read_line(path, line, sizeof line) < 0)
		strcpy(line, "?");
	cli_tame(line);
	snprintf(ret, bytes, "%.*s", (int)bytes - 1, line);
}

int cli_process_read(pid_t pid, struct cli_process *ret)
{
	struct cow_stats stats = {.size = sizeof stats};
	struct cow_settings settings = {.size = sizeof settings};
	int r = cow_stats_read(pid, &stats);

	if (r == 0)
		r = cow_settings_read(pid, &settings);
	if (r < 0)
		return r;
	ret->unserved = false;
	ret->settings = settings;
	ret->pid = pid;
	ret->stats = stats;
	read_name(pid, ret->name, sizeof ret->name);
	return 0;
}

bool cli_process_has_shim(pid_t pid)
{
	char path[64], *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *maps;

	snprintf(path, sizeof path, "/proc/%ld/maps", (long)pid);
	maps = fopen(path, "re");
	while (maps != NULL && !found && getline(&line, &room, maps) > 0)
		found = strstr(line, "/libcowshed-preload.so") != NULL;
	free(line);
	if (maps != NULL)
		fclose(maps);
	return found;
}

/* The value of the variable `name`, which ends with "=", when the program began; NULL: it had none.
 * The caller frees it. */
static char *variable_of(pid_t pid, const char *name)
{
	char path[64], *pair = NULL, *found = NULL;
	size_t room = 0;
	FILE *all;

	snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
	all = fopen(path, "re");
	while (all != NULL && found == NULL && getdelim(&pair, &room, 0, all) > 0)
		if (strncmp(pair, name, strlen(name)) == 0)
			found = strdup(pair + strlen(name));
	free(pair);
	if (all != NULL)
		fclose(all);
	return found;
}

void cli_process_mistakes(pid_t pid, char *ret, size_t bytes)
{
	char *options = variable_of(pid, "COWSHED_OPTIONS=");

	*ret = 0;
	if (options != NULL)
		cli_mistakes_text(options, ret, bytes);
	free(options);
}

/* The mappings of a process take long to read, so its variables are read first. */
static bool read_unserved(pid_t pid, struct cli_process *ret)
{
	char *preload = variable_of(pid, "LD_PRELOAD=");
	bool found = preload != NULL && strstr(preload, "libcowshed-preload.so") != NULL &&
	             cli_process_has_shim(pid);

	free(preload);
	if (!found)
		return false;
	*ret = (struct cli_process){.pid = pid, .unserved = true};
	read_name(pid, ret->name, sizeof ret->name);
	return true;
}

static bool read_any(pid_t pid, struct cli_process *ret)
{
	int r = cli_process_read(pid, ret);

	return r == 0 || (r == -ENOENT && read_unserved(pid, ret));
}

static int by_bytes_live(const void *a, const void *b)
{
	const struct cli_process *p = a, *q = b;

	if (p->stats.bytes_live != q->stats.bytes_live)
		return p->stats.bytes_live < q->stats.bytes_live ? 1 : -1;
	return p->pid < q->pid ? -1 : p->pid > q->pid;
}

/* Room for one more behind `count`. -ENOMEM. */
static int grow_list(struct cli_process **list, size_t count, size_t *room)
{
	struct cli_process *larger;

	if (count < *room)
		return 0;
	larger = realloc(*list, (2 * *room + 16) * sizeof **list);
	if (larger == NULL)
		return -ENOMEM;
	*list = larger;
	*room = 2 * *room + 16;
	return 0;
}

ssize_t cli_process_scan(struct cli_process **ret)
{
	struct cli_process *list = NULL;
	size_t count = 0, room = 0;
	struct dirent *entry;
	DIR *proc = opendir("/proc");
	int r = 0;

	if (proc == NULL)
		return -errno;
	/* An empty folder is no /proc. */
	if (access("/proc/self", F_OK) < 0)
		r = -errno;
	while (r == 0 && (entry = readdir(proc)) != NULL) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		r = grow_list(&list, count, &room);
		if (r == 0 && read_any((pid_t)atol(entry->d_name), &list[count]))
			count++;
	}
	closedir(proc);
	if (r < 0) {
		free(list);
		return r;
	}
	if (count > 0)
		qsort(list, count, sizeof *list, by_bytes_live);
	*ret = list;
	return (ssize_t)count;
}
