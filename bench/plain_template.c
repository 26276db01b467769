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
 *      plain_template [-b BLOCK] [-t TOTAL] [-n CHILDREN] [-p PAGES] [-a] [-H]
 *
 * -H advises huge pages for every block. With -a the parent allocates a block of 1 MiB
 * before each fork, writes it, and frees it after the fork. The program prints the time of
 * fork() in microseconds: the median, the 99th percentile, and the medians of the first and
 * of the last tenth; the memory that the children cost, for each of them, in KiB; the time
 * to kill and reap all of them, in milliseconds; and the first fork after that.
 */
#include "bench/common.h"

#include <signal.h>
#include <sys/wait.h>

static char **blocks;
static size_t block = 64 * MIB, total = 8 * GIB, count, pages = 64;
static bool huge, allocating;

static void fill(void)
{
	count = total / block;
	blocks = calloc(count + 1, sizeof(*blocks));
	if (!block || !count || !blocks)
		die("bad size");
	for (size_t i = 0; i < count; i++) {
		blocks[i] = malloc(block);
		if (!blocks[i])
			die("malloc of %zu bytes failed", block);
		if (huge) {
			uintptr_t at = ((uintptr_t)blocks[i] + PAGE - 1) & -PAGE;

			madvise((void *)at,
			        ((uintptr_t)blocks[i] + block - at) & -PAGE,
			        MADV_HUGEPAGE);
		}
		memset(blocks[i], 1, block);
	}
}

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
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	return file_kb(path, "Private_Dirty") + file_kb(path, "Private_Clean");
}

static double fork_us(int n, const int *ready, pid_t *pid)
{
	char *extra = allocating ? malloc(MIB) : NULL, byte;
	double t0, t1;

	if (extra)
		memset(extra, 3, MIB);
	t0 = now_ns();
	*pid = fork();
	if (*pid == 0)
		child(n, ready[1]);
	t1 = now_ns();
	if (*pid < 0)
		die("fork %d: %s", n, strerror(errno));
	if (read(ready[0], &byte, 1) != 1)
		die("child %d saw wrong bytes or crashed", n);
	free(extra);
	return (t1 - t0) / 1e3;
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
	return (now_ns() - t0) / 1e6;
}

/* A quantile of v[from] to v[to - 1]; sorts them. */
static double quantile(double *v, int from, int to, double q)
{
	qsort(v + from, (size_t)(to - from), sizeof(*v), series_order);
	return v[from + (int)(q * (to - from - 1) + 0.5)];
}

static void run(int n)
{
	double *us = calloc((size_t)n, sizeof(*us)), before, cost, ms, early, late;
	pid_t *pids = calloc((size_t)n, sizeof(*pids));
	int tenth = n < 10 ? 1 : n / 10, ready[2];

	if (!us || !pids || pipe(ready))
		die("no memory");
	before = available();
	for (int i = 0; i < n; i++)
		us[i] = fork_us(i, ready, &pids[i]);
	cost = (before - available()) / n;
	printf("private_kib=%.0f cost_kib=%.0f ", private_of(pids[n / 2]) / KIB,
	       cost / KIB);
	ms = reap_ms(pids, n);
	early = quantile(us, 0, tenth, 0.5);
	late = quantile(us, n - tenth, n, 0.5);
	printf("fork_us=%.1f p99_us=%.1f max_us=%.1f early_us=%.1f late_us=%.1f "
	       "reap_ms=%.1f left_mib=%.1f ",
	       quantile(us, 0, n, 0.5), quantile(us, 0, n, 0.99),
	       quantile(us, 0, n, 1), early, late, ms,
	       (before - available()) / MIB);
	printf("next_us=%.1f\n", fork_us(n, ready, pids));
	(void)reap_ms(pids, 1);
}

int main(int argc, char **argv)
{
	int n = 1000, c;

	while ((c = getopt(argc, argv, "b:t:n:p:aH")) != -1)
		switch (c) {
		case 'b': block = size_parse(optarg); break;
		case 't': total = size_parse(optarg); break;
		case 'n': n = atoi(optarg); break;
		case 'p': pages = size_parse(optarg); break;
		case 'a': allocating = true; break;
		case 'H': huge = true; break;
		default: die("usage: plain_template [-b B] [-t T] [-n N] [-p P] [-a] [-H]");
		}
	if (n < 1 || !pages || pages > total / PAGE)
		die("bad number");
	fill();
	run(n);
	return 0;
}
