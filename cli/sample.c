/* SPDX-License-Identifier: MIT */
/*
 * Looks at a program and all its descendants, again and again
 *
 * The looks are made by a process of their own, so that `run` waits for nothing
 * but the program. Who is a descendant is found in /proc each time, by the numbers
 * of the parents. A process that was found stays one when its parent ends, and so do
 * its later children. Only one whose parent ended before the first look at it is missed.
 *
 * A look holds up a fork of the process whose page tables it reads. So the time between
 * two looks is at least 20 times the processor time that a look took. The time that it
 * waited for a processor doesn't count: on a busy machine looks would be seconds apart.
 * That time between two looks doubles each LOOKS_MOST looks, so a program that runs for
 * a day leaves some thousands.
 */
#include "cli/profile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS_MOST = 2000, FIRST_MS = 10, SHARE = 20 };

struct process {
	pid_t pid, parent;
	uint64_t started;
	bool ours;
};

/* The processes of the program at the last look, by their numbers. */
struct watched {
	pid_t root;
	uint64_t start;
	struct cli_known *all;
	size_t count;
	uint64_t copied, forks; /* so far */
};

/* Fields 4 and 22 of its line: see proc_pid_stat(5). */
static struct process read_process(pid_t pid)
{
	struct process process = {.pid = pid};
	char path[64], line[512], *end;
	unsigned long long started = 0;
	long parent = 0;

	snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
	if (cli_read_line(path, line, sizeof line) < 0)
		return process;
	end = strrchr(line, ')'); /* the name may have any characters */
	if (end != NULL &&
	    sscanf(end + 1, " %*c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
	           "%*s %*s %*s %*s %*s %*s %*s %llu", &parent, &started) == 2) {
		process.parent = (pid_t)parent;
		process.started = started;
	}
	return process;
}

/* `pid` is the first member of both structs. */
static int by_pid(const void *a, const void *b)
{
	const pid_t *p = a, *q = b;

	return *p < *q ? -1 : *p > *q;
}

/* All processes, by their numbers. Returns how many; the caller frees *ret. Without memory
 * for all of them it says that the look is incomplete. */
static size_t list(struct process **ret, struct cli_look *look)
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
			if (larger == NULL) {
				look->incomplete = true;
				break;
			}
			all = larger;
			room = 2 * room + 64;
		}
		all[count++] = read_process((pid_t)pid);
	}
	if (proc != NULL)
		closedir(proc);
	if (count > 0)
		qsort(all, count, sizeof *all, by_pid);
	*ret = all;
	return count;
}

static struct cli_known *known_before(const struct watched *watched,
                                      const struct process *process)
{
	struct cli_known *known =
		watched->count == 0 ? NULL
		: bsearch(&process->pid, watched->all, watched->count,
		          sizeof *watched->all, by_pid);

	return known != NULL && known->started == process->started ? known : NULL;
}

/* Marks the descendants of the root but this process, and those that were known. */
static size_t mark_descendants(struct process *all, size_t count, const struct watched *watched)
{
	size_t found = 0, before;
	pid_t self = getpid();

	for (size_t i = 0; i < count; i++) {
		all[i].ours = known_before(watched, &all[i]) != NULL;
		found += all[i].ours;
	}
	do {
		before = found;
		for (size_t i = 0; i < count; i++) {
			const struct process *parent;

			if (all[i].ours || all[i].pid == self)
				continue;
			parent = bsearch(&all[i].parent, all, count, sizeof *all,
			                 by_pid);
			all[i].ours = all[i].parent == watched->root ||
			              (parent != NULL && parent->ours);
			found += all[i].ours;
		}
	} while (found > before);
	return found;
}

/* Looks at all of them, as far as there is memory. Returns how many there are; the caller
 * frees *ret. */
static size_t look_at_all(struct cli_look *look, const struct watched *watched,
                          struct cli_known **ret)
{
	struct process *all;
	size_t count = list(&all, look), n = 0;
	struct cli_known *now = calloc(mark_descendants(all, count, watched) + 1, sizeof *now);

	if (now == NULL)
		look->incomplete = true;
	for (size_t i = 0; !look->incomplete && i < count; i++) {
		const struct cli_known *before = known_before(watched, &all[i]);

		if (!all[i].ours)
			continue;
		now[n] = before != NULL ? *before
		                        : (struct cli_known){.pid = all[i].pid,
		                                             .started = all[i].started};
		cli_look_at(look, &now[n++]);
	}
	free(all);
	free(look->seen);
	*ret = now;
	return n;
}

/* Half a look would show less memory than there is, and forget what the counters were. So
 * without memory for a whole one there is none, and the next one goes on from the last. */
static void take_sample(struct watched *watched, FILE *out)
{
	struct cli_look look = {.sum.ns = cli_now_ns() - watched->start};
	struct cli_known *now;
	size_t n = look_at_all(&look, watched, &now);

	if (look.incomplete) {
		free(now);
		return;
	}
	free(watched->all);
	watched->all = now;
	watched->count = n;
	look.sum.copied = watched->copied += look.sum.copied;
	look.sum.forks = watched->forks += look.sum.forks;
	if (look.memfds > look.mapped)
		look.sum.unmapped = look.memfds - look.mapped;
	look.sum.all = look.sum.alone + look.sum.shared + look.sum.unmapped;
	if (n > 0)
		fwrite(&look.sum, sizeof look.sum, 1, out);
	fflush(out);
}

/* Processor time of this process. */
static uint64_t processor_ns(void)
{
	struct timespec t = {0};

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* In the process that looks: until the other end of `stop` is closed. */
static void look_until(int stop, pid_t root, FILE *out)
{
	struct watched watched = {.root = root, .start = cli_now_ns()};
	struct pollfd end = {.fd = stop, .events = POLLIN};
	uint64_t looks = 0, wait = FIRST_MS, took = 0;

	while (poll(&end, 1, (int)(wait > took ? wait : took)) <= 0) {
		uint64_t before = processor_ns();

		take_sample(&watched, out);
		took = (processor_ns() - before) * SHARE / 1000000;
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
	sigset_t all;
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
		/* What ends or stops the program in the foreground does the same to `run`, later. */
		sigfillset(&all);
		sigprocmask(SIG_BLOCK, &all, NULL);
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
