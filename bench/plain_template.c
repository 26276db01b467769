/* SPDX-License-Identifier: MIT */
/*
 * A template with many living children
 *
 * A plain program: it knows nothing of cowshed and runs with or without the shim. It
 * fills TOTAL bytes in blocks of malloc, then forks CHILDREN children. Each child writes
 * one byte to each of PAGES pages, which are spread over the blocks, and stays alive.
 * The parent waits until a child has written, and then forks the next one. At the end it
 * kills all children and waits for them.
 *
 *      plain_template [-b BLOCK] [-t TOTAL] [-n CHILDREN] [-p PAGES] [-H]
 *
 * -H advises huge pages for every block. The program prints the time of fork() in
 * microseconds: the median, the 99th percentile, and the medians of the first and of the
 * last tenth; the memory that the children cost, for each of them, in KiB; and the time to
 * kill and reap all of them, in milliseconds.
 */
#include "bench/common.h"

#include <signal.h>

static char **blocks;
static size_t block = 64 * MIB, total = 8 * GIB, count, pages = 64;
static bool huge;

/* Child `n` writes other pages than its neighbours. */
static void child(int n, int ready)
{
	size_t step = total / pages / PAGE * PAGE;

	signal(SIGTERM, SIG_DFL);
	for (size_t i = 0; i < pages; i++) {
		size_t at = (i * step + (size_t)n * 7 % (step / PAGE) * PAGE) %
		            (count * block);
		char *p = &blocks[at / block][at % block];

		if (*p != 1)
			_exit(1); /* it sees a sibling's write */
		*p = 2;
	}
	if (write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* What children cost: memory of any kind that the machine lacks then. */
static double available(void)
{
	return file_kb("/proc/meminfo", "MemAvailable");
}

static double private_of(pid_t pid)
{
	const char *path = named("/proc/%d/smaps_rollup", (int)pid);

	return file_kb(path, "Private_Dirty") + file_kb(path, "Private_Clean");
}

static double reap_ms(const pid_t *pids, int n)
{
	double t0 = now_ns();
	int status;

	for (int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < n; i++)
		if (waitpid(pids[i], &status, 0) != pids[i] ||
		    !WIFSIGNALED(status))
			die("child %d ended by itself", i);
	return ms_since(t0);
}

static void run(int n)
{
	double *us = calloc((size_t)n, sizeof(*us)), before, cost, ms, early, late;
	pid_t *pids = calloc((size_t)n, sizeof(*pids));
	size_t tenth = n < 10 ? 1 : (size_t)n / 10;
	int ready[2];

	if (!us || !pids)
		die("no memory");
	pipe_open(ready);
	before = available();
	for (int i = 0; i < n; i++) {
		pids[i] = forked(&us[i]);
		if (pids[i] == 0)
			child(i, ready[1]);
		byte_in(ready[0]);
	}
	cost = (before - available()) / n;
	printf("private_kib=%.0f cost_kib=%.0f ", private_of(pids[n / 2]) / KIB, cost / KIB);
	ms = reap_ms(pids, n);
	early = quantile(us, tenth, 0.5);
	late = quantile(us + (size_t)n - tenth, tenth, 0.5);
	printf("fork_us=%.1f p99_us=%.1f early_us=%.1f late_us=%.1f reap_ms=%.1f\n",
	       quantile(us, (size_t)n, 0.5), quantile(us, (size_t)n, 0.99), early, late, ms);
}

int main(int argc, char **argv)
{
	int n = 1000;

	OPTIONS({ 'b', .size = &block }, { 't', .size = &total }, { 'n', .count = &n },
	        { 'p', .size = &pages }, { 'H', .flag = &huge });
	if (n < 1 || !pages || pages > total / PAGE)
		die("bad number");
	blocks = blocks_of(total, block, huge, 1, &count);
	run(n);
	return 0;
}
