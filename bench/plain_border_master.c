/* SPDX-License-Identifier: MIT */
/*
 * A root master whose workers gave up their privileges, and which goes on to fork
 *
 *      plain_border_master [-b BLOCK] [-t TOTAL] [-n ROUNDS] [-s SECONDS] [-H]
 *
 * The master fills TOTAL bytes in blocks and forks eight workers, which drop and live. A
 * round: it rewrites all, waits, and forks a child that exits at once (a checkpoint). Then
 * it forks one more worker, which takes the place of the one of the round before. So at
 * most three versions of the memory are alive: that of the first workers, that of the
 * last one, and the master's.
 *
 * It prints a line a round: the time of the rewrite, the pauses of both forks, the time
 * until the checkpoint's child is gone, and the memory of all processes after the wait.
 */
#include "bench/border.h"

enum { WORKERS = 8 };

static void one_round(int n, pid_t *last)
{
	double t0 = now_ns(), rewrite, mib, pause_us, gone, worker;

	for (size_t i = 0; i < block_count; i++)
		memset(blocks[i], n + 1, block_bytes);
	rewrite = ms_since(t0);
	sleep_ms((long)(seconds * 1000));
	mib = charge_mib();
	t0 = now_ns();
	pause_us = fork_once(); /* the checkpoint */
	gone = us_since(t0);
	if (*last)
		worker_end(*last);
	worker = worker_start(last, true, n + 1);
	printf("round=%d rewrite_ms=%.2f checkpoint_us=%.2f gone_us=%.2f "
	       "worker_us=%.2f memory_mib=%.2f", n, rewrite, pause_us, gone, worker, mib);
	print_drop();
}

int main(int argc, char **argv)
{
	pid_t pids[WORKERS], last = 0;
	int turns = 3;

	options(argc, argv, &turns);
	blocks_fill(1);
	printf("first_us=%.2f\n", worker_start(&pids[0], true, 1));
	workers_start(pids + 1, WORKERS - 1, true);
	for (int n = 1; n <= turns; n++)
		one_round(n, &last);
	workers_end(pids, WORKERS);
	if (last)
		worker_end(last);
	return 0;
}
