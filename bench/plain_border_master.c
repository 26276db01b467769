/* SPDX-License-Identifier: MIT */
/*
 * A root master whose workers gave up their privileges, and which goes on to fork
 *
 *      plain_border_master [-b BLOCK] [-t TOTAL] [-w WORKERS] [-r ROUNDS] [-s SECONDS] [-H]
 *
 * The master fills TOTAL bytes in blocks and forks WORKERS workers, which drop and live. A
 * round: it rewrites all, waits, and forks a child that exits at once (a checkpoint). Then
 * it forks one more worker, which takes the place of the one of the round before. So at
 * most three versions of the memory are alive: that of the first workers, that of the
 * last one, and the master's.
 *
 * It prints a line a round: the time of the rewrite, the pauses of both forks, the time
 * until the checkpoint's child is gone, and the memory of all processes after the wait.
 */
#include "bench/border.h"

static int workers = 8, turns = 3;
static double seconds = 10;

static double checkpoint(double *ret_gone)
{
	double t0 = now_ns(), us;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	us = us_since(t0);
	if (pid < 0)
		die("fork: %s", strerror(errno));
	child_reap(pid);
	*ret_gone = us_since(t0);
	return us;
}

static void one_round(int n, pid_t *last)
{
	double t0 = now_ns(), rewrite, mib, pause_us, gone, worker;

	blocks_rewrite(n + 1);
	rewrite = us_since(t0);
	sleep_ms((long)(seconds * 1000));
	mib = charge_mib();
	pause_us = checkpoint(&gone);
	if (*last)
		worker_end(*last);
	worker = worker_start(last, true, n + 1);
	printf("round=%d rewrite_ms=%.2f checkpoint_us=%.2f gone_us=%.2f "
	       "worker_us=%.2f memory_mib=%.2f", n, rewrite / 1e3, pause_us, gone,
	       worker, mib);
	print_drop();
	putchar('\n');
	fflush(stdout);
}

int main(int argc, char **argv)
{
	pid_t *pids, last = 0;
	double us;
	int c;

	while ((c = getopt(argc, argv, "b:t:w:r:s:H")) != -1)
		switch (c) {
		case 'w': workers = atoi(optarg); break;
		case 'r': turns = atoi(optarg); break;
		case 's': seconds = atof(optarg); break;
		default:
			if (!blocks_option(c))
				die("usage: see the head of bench/plain_border_master.c");
		}
	(void)charge_mib();
	blocks_fill(1);
	pids = calloc((size_t)workers + 1, sizeof(*pids));
	if (!pids)
		die("no memory");
	for (int i = 0; i < workers; i++) {
		us = worker_start(&pids[i], true, 1);
		if (!i)
			printf("first_us=%.2f\n", us);
	}
	for (int n = 1; n <= turns; n++)
		one_round(n, &last);
	for (int i = 0; i < workers; i++)
		worker_end(pids[i]);
	if (last)
		worker_end(last);
	return 0;
}
