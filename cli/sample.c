/* SPDX-License-Identifier: MIT */
/*
 * Looks at the memory of a program and of all its descendants, again and again
 *
 * The looks are made by a process of their own, so that `run` waits for nothing
 * but the program. Who is a descendant is found in /proc each time, by the numbers
 * of the parents. A process whose parent ended before it is not found any more.
 *
 * Memory is counted where it is: in the memfds that the processes have open, each
 * once, and in their anonymous pages. The resident size would not do: frozen memory
 * is there while no process maps it.
 *
 * The time between two looks is at least 10 times what a look took, and doubles
 * each LOOKS_MOST looks. So a program that runs for a day leaves some thousands.
 */
#include "cli/profile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS_MOST = 2000, FIRST_MS = 10, SHARE = 10 };

struct process {
	pid_t pid, parent;
	bool ours;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static pid_t parent_of(pid_t pid)
{
	char path[64], line[512], *end;
	long parent = 0;

	snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
	if (cli_read_line(path, line, sizeof line) < 0)
		return 0;
	end = strrchr(line, ')'); /* the name may have any characters */
	return end != NULL && sscanf(end + 1, " %*c %ld", &parent) == 1
	               ? (pid_t)parent : 0;
}

/* All processes. Returns their number; the caller frees *ret. */
static size_t list(struct process **ret)
{
	struct process *all = NULL, *larger;
	size_t count = 0, room = 0;
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	while (proc != NULL && (entry = readdir(proc)) != NULL) {
		long pid = strtol(entry->d_name, NULL, 10);

		if (pid <= 0)
			continue;
		if (count == room) {
			larger = realloc(all, (2 * room + 64) * sizeof *all);
			if (larger == NULL)
				break;
			all = larger;
			room = 2 * room + 64;
		}
		all[count++] = (struct process){(pid_t)pid,
		                                parent_of((pid_t)pid), false};
	}
	if (proc != NULL)
		closedir(proc);
	*ret = all;
	return count;
}

/* Marks the descendants of `root` but `except`. */
static void mark(struct process *all, size_t count, pid_t root, pid_t except)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (size_t i = 0; i < count; i++) {
			if (all[i].ours || all[i].pid == except)
				continue;
			all[i].ours = all[i].parent == root;
			for (size_t j = 0; j < count && !all[i].ours; j++)
				all[i].ours = all[j].ours &&
				              all[j].pid == all[i].parent;
			changed |= all[i].ours;
		}
	}
}

/* The memfds that were seen in this look: their memory counts once. */
struct seen {
	dev_t device;
	ino_t file;
};

struct look {
	struct cli_sample sum;
	struct seen *seen;
	size_t count, room;
};

static bool is_new(struct look *look, const struct stat *facts)
{
	for (size_t i = 0; i < look->count; i++)
		if (look->seen[i].file == facts->st_ino &&
		    look->seen[i].device == facts->st_dev)
			return false;
	if (look->count == look->room) {
		size_t room = 2 * look->room + 64;
		struct seen *larger = realloc(look->seen, room * sizeof *larger);

		if (larger == NULL)
			return false;
		look->seen = larger;
		look->room = room;
	}
	look->seen[look->count++] = (struct seen){facts->st_dev, facts->st_ino};
	return true;
}

/* Memory in memfds, whether it is mapped at the moment or not. */
static void add_files(pid_t pid, struct look *look)
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
		look->sum.files += (uint64_t)facts.st_blocks * 512;
	}
	if (all != NULL)
		closedir(all);
}

static void add_own(pid_t pid, struct look *look)
{
	unsigned long long kib;
	char path[64], line[160];
	FILE *in;

	snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
	in = fopen(path, "re");
	while (in != NULL && fgets(line, sizeof line, in) != NULL)
		if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
			look->sum.own += kib << 10;
	if (in != NULL)
		fclose(in);
}

static void add(pid_t pid, struct look *look)
{
	struct cow_stats stats = {.size = sizeof stats};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	add_own(pid, look);
	add_files(pid, look);
	look->sum.processes++;
	if (cow_stats_read(pid, &stats) < 0)
		return;
	look->sum.copied += stats.bytes_copied + stats.pages_private * page;
	look->sum.forks += stats.forks;
	if (look->sum.fork_ns < stats.fork_ns_last)
		look->sum.fork_ns = stats.fork_ns_last;
}

static void look(pid_t root, uint64_t start, FILE *out)
{
	struct look look = {.sum.ns = now_ns() - start};
	struct process *all;
	size_t count = list(&all);

	mark(all, count, root, getpid());
	for (size_t i = 0; i < count; i++)
		if (all[i].ours)
			add(all[i].pid, &look);
	free(all);
	free(look.seen);
	look.sum.all = look.sum.own + look.sum.files;
	if (look.sum.processes > 0)
		fwrite(&look.sum, sizeof look.sum, 1, out);
	fflush(out);
}

/* In the process that looks: until the other end of `stop` is closed. */
static void look_until(int stop, pid_t root, FILE *out)
{
	struct pollfd end = {.fd = stop, .events = POLLIN};
	uint64_t start = now_ns(), looks = 0, wait = FIRST_MS, took = 0;

	while (poll(&end, 1, (int)(wait > took ? wait : took)) <= 0) {
		uint64_t before = now_ns();

		look(root, start, out);
		took = (now_ns() - before) * SHARE / 1000000;
		if (took > 60000)
			took = 60000;
		if (++looks % LOOKS_MOST == 0 && wait < 60000)
			wait *= 2;
	}
}

int cli_sampler_start(struct cli_sampler *ret)
{
	struct cli_sampler sampler = {.samples = tmpfile()};
	pid_t root = getpid();
	int ends[2], r;

	if (sampler.samples == NULL)
		return -errno;
	(void)fcntl(fileno(sampler.samples), F_SETFD, FD_CLOEXEC);
	r = pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
	if (r < 0) {
		fclose(sampler.samples);
		return r;
	}
	sampler.pid = fork();
	if (sampler.pid == 0) {
		close(ends[1]);
		/* What ends the program in the foreground ends `run` later. */
		signal(SIGINT, SIG_IGN);
		signal(SIGQUIT, SIG_IGN);
		look_until(ends[0], root, sampler.samples);
		_exit(0);
	}
	r = sampler.pid < 0 ? -errno : 0;
	close(ends[0]);
	if (r < 0) {
		close(ends[1]);
		fclose(sampler.samples);
		return r;
	}
	sampler.stop = ends[1];
	*ret = sampler;
	return 0;
}

ssize_t cli_sampler_stop(struct cli_sampler *sampler, struct cli_sample **ret)
{
	struct cli_sample *all;
	size_t count;
	long bytes;

	close(sampler->stop);
	while (waitpid(sampler->pid, NULL, 0) < 0 && errno == EINTR)
		;
	fseek(sampler->samples, 0, SEEK_END);
	bytes = ftell(sampler->samples);
	rewind(sampler->samples);
	count = bytes > 0 ? (size_t)bytes / sizeof *all : 0;
	all = calloc(count + 1, sizeof *all);
	if (all != NULL)
		count = fread(all, sizeof *all, count, sampler->samples);
	fclose(sampler->samples);
	if (all == NULL)
		return -ENOMEM;
	*ret = all;
	return (ssize_t)count;
}
