/* SPDX-License-Identifier: MIT */
/*
 * How long a writer waits while its memory is being saved
 *
 *      stall [GIB]...           1 and 4 GiB if nothing is said
 *
 * A thread writes one page in eight, all over the memory and then once more beside
 * them, while another one saves it; it goes on for a tenth of a second after that.
 * Each write is timed. So that it is known what the machine does by itself, the same
 * loop runs
 *
 *   alone     nothing is saved
 *   save      cow_storage_save() of the storage that is written
 *   again     the same a second time: what was written since is copied first
 *   plain     write(2) of malloc'ed memory as it changes: no state that ever was
 *   fork      a child writes it; the writer's pause for fork() is one of its writes
 *
 * Two figures each: the longest wait and that of one write in a thousand. And the
 * longest without the time for which another thread had the processor (run_delay
 * of schedstat): that part no library can shorten.
 *
 * BENCH_FILE names the file, /dev/shm if nothing is said; it is unlinked at once.
 * 4 GiB want 10 GiB of memory with the file in memory, and a minute.
 */
#include <cowshed-file.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "bench/common.h"

#define STEP (8 * PAGE)
#define AFTER_NS 1e8
#define ALONE_NS 1e9
#define BUCKETS 4096 /* of a 16th of an octave, in ns */

struct loop {
	struct cow_storage *s; /* or */
	char *memory;
	size_t bytes;
	int fd;
	bool forks;
	int begun, done;
	/* What was found, in us. */
	double longest, rare, running;
};

static const char *path = "/dev/shm/cowshed-bench-stall";

/* Nanoseconds for which this thread could have run and did not. */
static double kept_waiting(int schedstat)
{
	char text[128];
	long long ran, waited = 0;
	ssize_t n = pread(schedstat, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return sscanf(text, "%lld %lld", &ran, &waited) == 2 ? (double)waited : 0;
}

static void all_of(int fd, const char *p, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		size_t most = bytes - at < 2 * MIB ? bytes - at : 2 * MIB;
		ssize_t n = pwrite(fd, p + at, most, (off_t)at);

		if (n <= 0)
			die("stall: write: %s", strerror(errno));
		at += (size_t)n;
	}
}

static void *saver(void *arg)
{
	struct loop *l = arg;

	__atomic_store_n(&l->begun, 1, __ATOMIC_RELEASE);
	if (l->s)
		must(cow_storage_save_fd(l->s, l->fd, 0, 0, NULL));
	else
		all_of(l->fd, l->memory, l->bytes);
	__atomic_store_n(&l->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *child_saver(void *arg)
{
	struct loop *l = arg;
	int status;

	if (waitpid((pid_t)l->forks, &status, 0) < 0)
		die("stall: wait");
	return NULL;
}

struct waits {
	unsigned long count[BUCKETS], n;
	double longest, running;
};

static void add(struct waits *w, double ns, double waited)
{
	double log = 0;

	w->n++;
	w->longest = ns > w->longest ? ns : w->longest;
	w->running = ns - waited > w->running ? ns - waited : w->running;
	for (; ns >= 2; ns /= 2)
		log += 16;
	log += (ns - 1) * 16;
	w->count[(size_t)log < BUCKETS ? (size_t)log : BUCKETS - 1]++;
}

static double rare(const struct waits *w)
{
	unsigned long left = w->n / 1000;
	size_t i = BUCKETS;
	double ns = 1;

	while (i > 0 && w->count[i - 1] <= left)
		left -= w->count[--i];
	for (; i > 16; i -= 16)
		ns *= 2;
	return ns * (1 + (double)i / 16);
}

