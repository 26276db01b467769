/* SPDX-License-Identifier: MIT */
/*
 * The whole cycle of a fork, until everything is as before
 *
 * A fast fork proves little if every write after it is slow. So a cycle here is: fork;
 * the child exits, execs /bin/true, or reads everything and exits; the parent waits for
 * it and rewrites a part of its memory. Wall and CPU time (of the process, its threads
 * and its children) are of the whole cycle. A plain program, to be run with and without
 * the shim.
 *
 *      plain_cycle [options]
 *         -m exit|exec|read   what the child does             (exit)
 *         -w PERCENT          of the pages are rewritten       (100)
 *         -s                  ... scattered, not in one run
 *         -c                  ... while the child lives; it waits for a byte
 *         -t N                N idle threads in pthread_cond_wait
 *         -B N                N threads that write all the time, to old and new
 *                             blocks of their own
 *         -R PERCENT          of the blocks are freed and made anew at the end
 *                             of each cycle, which includes that time
 *         -n CYCLES  -b BLOCK  -S TOTAL  -H (advise huge pages)
 *
 * It prints one line a cycle, all in microseconds. `busy` is the number of pages that
 * the writers wrote in a millisecond, since a fork can also slow the writers. With
 * writers, most of the CPU time is theirs and says little.
 */
#include "bench/common.h"

#include <pthread.h>
#include <stdatomic.h>

static size_t block_bytes = 64 * MIB, total = GIB;
static bool huge, scattered, concurrent;
static const char *mode = "exit";
static double percent = 100;
static char **blocks;
static unsigned char *base; /* what each block was filled with */
static size_t count;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_wake = PTHREAD_COND_INITIALIZER;
static bool stopping;
static _Atomic unsigned long busy_pages;
static _Atomic bool busy_stop;

static char *block_new(int value)
{
	return block_of(block_bytes, huge, value);
}

static void *idle_main(void *unused)
{
	pthread_mutex_lock(&pool_lock);
	while (!stopping)
		pthread_cond_wait(&pool_wake, &pool_lock);
	pthread_mutex_unlock(&pool_lock);
	return unused;
}

/* Writes to four blocks of its own, page after page. Before each write it checks what it
 * wrote the last time. After each pass over the four the oldest block is made anew. */
static void *busy_main(void *unused)
{
	enum { OWN = 4 };
	char *own[OWN];
	unsigned char value[OWN];

	for (int i = 0; i < OWN; i++)
		own[i] = block_new(value[i] = 1);
	for (int turn = 0; !atomic_load(&busy_stop); turn++) {
		int i = turn % OWN;
		unsigned char next = value[i] + 1;

		for (size_t at = 0; at + PAGE <= block_bytes &&
		                    !atomic_load(&busy_stop); at += PAGE) {
			if ((unsigned char)own[i][at] != value[i])
				die("a writer lost a write");
			memset(own[i] + at, next, PAGE);
			atomic_fetch_add(&busy_pages, 1);
		}
		if (atomic_load(&busy_stop))
			break;
		value[i] = next;
		if (i == OWN - 1) {
			int old = turn / OWN % OWN;

			free(own[old]);
			own[old] = block_new(value[old]);
		}
	}
	for (int i = 0; i < OWN; i++)
		free(own[i]);
	return unused;
}

/* Is this page, counted over all blocks, rewritten in each cycle? */
static bool rewritten(size_t page)
{
	size_t pages = block_bytes / PAGE * count;
	size_t n = (size_t)(pages * percent / 100);
	size_t step = scattered && n ? pages / n : 1;

	return page % step == 0 && page / step < n;
}

/* The child: all bytes must be as they were at the fork. `last` is the value that the
 * rewrite() before the fork wrote. */
static int child_read(unsigned char last)
{
	uint64_t bad = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t at = 0; at + PAGE <= block_bytes; at += PAGE) {
			size_t page = (i * block_bytes + at) / PAGE;
			unsigned char b = rewritten(page) ? last : base[i];
			uint64_t word = b * 0x0101010101010101u;
			const uint64_t *p = (uint64_t *)(blocks[i] + at);

			for (size_t k = 0; k < PAGE / 8; k++)
				bad |= p[k] ^ word;
		}
	return bad != 0;
}

static void child_main(unsigned char last, int hold)
{
	char byte;

	if (hold >= 0 && read(hold, &byte, 1) != 1)
		_exit(3);
	if (!strcmp(mode, "exec")) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	_exit(!strcmp(mode, "read") ? child_read(last) : 0);
}

static void rewrite(unsigned char value)
{
	size_t pages = block_bytes / PAGE * count;
	size_t n = (size_t)(pages * percent / 100);
	size_t step = scattered && n ? pages / n : 1;

	for (size_t i = 0; i < n; i++) {
		size_t at = i * step * PAGE;

		memset(blocks[at / block_bytes] + at % block_bytes, value,
		       PAGE);
	}
}

static void renew(size_t n, unsigned char value, size_t *next)
{
	for (size_t i = 0; i < n; i++, *next = (*next + 1) % count) {
		free(blocks[*next]);
		blocks[*next] = block_new(value);
		base[*next] = value;
	}
}

static void cycle(int number, size_t renewed, size_t *next)
{
	double pause_us, wait_us, write_us = 0, renew_us, t;
	struct moment begin;
	unsigned long busy = atomic_load(&busy_pages);
	unsigned char value = number;
	int hold[2] = { -1, -1 };
	pid_t pid;

	if (concurrent)
		pipe_open(hold);
	begin = moment_now();
	pid = forked(&pause_us);
	if (pid == 0)
		child_main(value - 1, hold[0]);
	t = now_ns();
	if (concurrent) {
		rewrite(value);
		write_us = us_since(t);
		t = now_ns();
		byte_out(hold[1]);
	}
	reap(pid);
	wait_us = us_since(t);
	t = now_ns();
	if (concurrent) {
		close(hold[0]);
		close(hold[1]);
	} else {
		rewrite(value);
		write_us = us_since(t);
		t = now_ns();
	}
	renew(renewed, value, next);
	renew_us = us_since(t);
	t = us_since(begin.wall);
	printf("cycle=%d wall_us=%.1f cpu_us=%.1f pause_us=%.1f wait_us=%.1f "
	       "write_us=%.1f renew_us=%.1f busy=%.1f\n", number, t,
	       (cpu_ns() - begin.cpu) / 1e3, pause_us, wait_us, write_us, renew_us,
	       (atomic_load(&busy_pages) - busy) / (t / 1e3));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int cycles = 9, idle = 0, busy = 0;
	double renew_percent = 0;
	pthread_t thread[64];
	size_t next = 0;
	int n = 0;

	OPTIONS({ 'm', .text = &mode }, { 'w', .number = &percent }, { 's', .flag = &scattered },
	        { 'c', .flag = &concurrent }, { 't', .count = &idle }, { 'B', .count = &busy },
	        { 'R', .number = &renew_percent }, { 'n', .count = &cycles },
	        { 'b', .size = &block_bytes }, { 'S', .size = &total }, { 'H', .flag = &huge });
	blocks = blocks_of(total, block_bytes, huge, 0, &count);
	base = calloc(count + 1, 1);
	if (!base || idle + busy > 64)
		die("bad size");
	for (int i = 0; i < idle; i++)
		if (pthread_create(&thread[n++], NULL, idle_main, NULL))
			die("pthread_create");
	for (int i = 0; i < busy; i++)
		if (pthread_create(&thread[n++], NULL, busy_main, NULL))
			die("pthread_create");
	if (n) /* the threads need not be in order, but running */
		sleep_ms(busy ? 300 : 20);
	for (int i = 1; i <= cycles; i++)
		cycle(i, (size_t)(count * renew_percent / 100), &next);
	pthread_mutex_lock(&pool_lock);
	stopping = true;
	atomic_store(&busy_stop, true);
	pthread_cond_broadcast(&pool_wake);
	pthread_mutex_unlock(&pool_lock);
	while (n)
		pthread_join(thread[--n], NULL);
	for (size_t i = 0; i < count; i++)
		free(blocks[i]);
	free(blocks);
	free(base);
	return 0;
}
