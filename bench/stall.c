/* SPDX-License-Identifier: MIT */
/*
 * How long a writer waits while its memory is being saved
 *
 *      stall [SIZE]...          1GiB and 4GiB without arguments
 *
 * A thread writes one page in eight over all of the memory, and then the pages beside
 * them, while another thread saves the memory. It goes on for a second after the save.
 * Each write is timed. The same loop runs in five ways, which also shows the waits that
 * the machine causes:
 *
 *   alone     nothing is saved
 *   save      cow_storage_save() of the storage that is written
 *   again     the same a second time, after what was written meanwhile was thawed
 *   plain     write(2) of malloc'ed memory while it changes; the file is of no one moment
 *   fork      a child writes the file; the writer's pause for fork() is one of its writes
 *
 * Three figures each: the longest wait, the wait of one write in a thousand, and the
 * longest wait without the time for which another thread had the processor (run_delay
 * of schedstat), which no library can shorten.
 *
 * BENCH_FILE names the file (/dev/shm/cowshed-bench-stall); it is unlinked at once. 4 GiB
 * need 10 GiB of memory with the file in memory, and two minutes.
 */
#include <cowshed-file.h>
#include <fcntl.h>
#include <pthread.h>

#include "bench/common.h"

#define STEP (8 * PAGE)
#define AFTER_NS 1e9
#define ALONE_NS 1e9
#define BUCKETS 4096 /* each a 16th of an octave of ns */

struct loop {
	struct cow_storage *s; /* what is saved: this, or if NULL */
	char *memory;          /* this */
	size_t bytes;
	int fd;
	int begun, done;
};

static const char *path = "/dev/shm/cowshed-bench-stall";

/* Nanoseconds for which this thread was ready to run and did not. */
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

/* Writes until `done` is set (or the child has ended), or for a second if it is NULL; and
 * then for AFTER_NS more. */
static void write_all(struct loop *l, bool forks, const int *done, struct waits *w)
{
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	double begin = now_ns(), ended = done ? 0 : begin + ALONE_NS;
	pid_t child = -1;
	size_t i = 0;

	for (;; i++) {
		size_t at = i * STEP, turn = at / l->bytes;
		double waited = kept_waiting(schedstat), t0 = now_ns(), ns;
		void *p = l->memory;
		int status;

		if (i == 0 && forks && (child = fork()) == 0) {
			all_of(l->fd, l->memory, l->bytes);
			_exit(0);
		}
		/* Each eighth page, and in the next turn the pages beside them. */
		at = at % l->bytes + turn % 2 * PAGE;
		if (l->s)
			must(cow_storage_data_mut_range(l->s, at, 1,
			                                COW_WRITE_BY_PAGE, &p));
		((volatile char *)p)[at]++;
		ns = now_ns() - t0;
		add(w, ns, ns > 1e5 ? kept_waiting(schedstat) - waited : 0);
		if (!ended && forks && i % 64 == 63 &&
		    waitpid(child, &status, WNOHANG) == child)
			ended = now_ns();
		if (!ended && !forks && __atomic_load_n(done, __ATOMIC_ACQUIRE))
			ended = now_ns();
		if (ended && t0 > ended + AFTER_NS)
			break;
	}
	close(schedstat);
}

enum { ALONE, SAVE, AGAIN, PLAIN, FORK, WAYS };

static const char *const names[] = { "alone", "save", "again", "plain", "fork" };

static struct series longest[WAYS], once[WAYS], running[WAYS];

static void measure(int way, struct loop *l)
{
	static struct waits w;
	pthread_t thread;
	bool saves = way == SAVE || way == AGAIN || way == PLAIN;

	memset(&w, 0, sizeof(w));
	l->begun = l->done = 0;
	l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (l->fd < 0 || unlink(path) < 0)
		die("stall: %s: %s", path, strerror(errno));
	if (saves && pthread_create(&thread, NULL, saver, l) != 0)
		die("stall: thread");
	while (saves && !__atomic_load_n(&l->begun, __ATOMIC_ACQUIRE))
		;
	write_all(l, way == FORK, saves || way == FORK ? &l->done : NULL, &w);
	if (saves)
		pthread_join(thread, NULL);
	close(l->fd);
	series_add(&longest[way], w.longest / 1e3);
	series_add(&once[way], rare(&w) / 1e3);
	series_add(&running[way], w.running / 1e3);
}

static void all_ways(size_t bytes)
{
	struct loop l = { .bytes = bytes };

	l.s = storage_filled(bytes, 0, 1, NULL);
	measure(ALONE, &l);
	measure(SAVE, &l);
	measure(AGAIN, &l);
	cow_storage_unref(l.s);
	l.s = NULL;
	l.memory = block_of(bytes, false, 1);
	measure(PLAIN, &l);
	measure(FORK, &l);
	free(l.memory);
}

static void run(size_t bytes)
{
	warm_host(2 * bytes + bytes / 2);
	memset(longest, 0, sizeof(longest));
	memset(once, 0, sizeof(once));
	memset(running, 0, sizeof(running));
	for (int i = 0; i < 3; i++)
		all_ways(bytes);
	for (int way = 0; way < WAYS; way++) {
		enum bar_on on = way == SAVE ? BAR_WORST : BAR_NONE;
		const char *size = size_name(bytes);

		report(named("%s-%s/longest", size, names[way]), "us", &longest[way],
		       &longest[ALONE], on, 1000);
		report_ratio(named("%s-%s/one-in-1000", size, names[way]), "us", &once[way],
		             &once[ALONE]);
		report(named("%s-%s/longest-running", size, names[way]), "us", &running[way],
		       &running[ALONE], on, 1000);
	}
}

int main(int argc, char **argv)
{
	if (getenv("BENCH_FILE"))
		path = getenv("BENCH_FILE");
	if (argc < 2) {
		run(sized(GIB));
		run(sized(4 * GIB));
	}
	for (int i = 1; i < argc; i++)
		run(size_parse(argv[i]));
	return 0;
}
