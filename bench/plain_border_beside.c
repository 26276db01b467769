/* SPDX-License-Identifier: MIT */
/*
 * Allocations of a process that has living children, or that forks again and again
 *
 *      plain_border_beside -m beside|cycle [-b BLOCK] [-t TOTAL] [-n TIMES] [-k] [-H]
 *
 * beside  the program fills TOTAL bytes and forks eight workers, which live. TIMES times it
 *         makes, writes and frees a block of 1 to 16 MiB; four are alive at a time. It
 *         prints the time for each MiB. The workers drop; with -k they keep their privileges.
 * cycle   TIMES times: fork, the child exits at once, the parent makes and writes eight
 *         blocks of 4 MiB, and frees them. It prints the medians of the pause, of the
 *         allocations, and of the whole cycle, without the first two cycles.
 */
#include "bench/border.h"

enum { ALIVE = 4, BLOCKS = 8, WORKERS = 8 };
static int times = 100;

static double beside(void)
{
	char *alive[ALIVE] = { NULL };
	size_t bytes = 0;
	double t0 = now_ns();

	for (int i = 0; i < times; i++) {
		size_t size = (1 + (size_t)i * 7 % 16) * MIB;

		free(alive[i % ALIVE]);
		alive[i % ALIVE] = block_of(size, huge, 2);
		bytes += size;
	}
	for (int i = 0; i < ALIVE; i++)
		free(alive[i]);
	return us_since(t0) / ((double)bytes / MIB);
}

static void run_beside(void)
{
	pid_t pids[WORKERS];
	double cold, warm;

	workers_start(pids, WORKERS, !given['k']);
	cold = beside();
	warm = beside();
	printf("cold_us=%.3f warm_us=%.3f memory_mib=%.2f", cold, warm, charge_mib());
	print_drop();
	workers_end(pids, WORKERS);
}

static void run_cycle(void)
{
	struct series pauses = { { 0 }, 0 }, allocs = pauses, cycles = pauses;
	char *made[BLOCKS];

	for (int i = 0; i < times + 2; i++) {
		double t0 = now_ns(), t1;

		warming_up = i < 2;
		series_add(&pauses, fork_once());
		t1 = now_ns();
		for (int k = 0; k < BLOCKS; k++)
			made[k] = block_of(4 * MIB, huge, 2);
		for (int k = 0; k < BLOCKS; k++)
			free(made[k]);
		series_add(&allocs, us_since(t1));
		series_add(&cycles, us_since(t0));
	}
	printf("pause_us=%.2f alloc_us=%.2f cycle_us=%.2f memory_mib=%.2f\n",
	       series_median(&pauses), series_median(&allocs), series_median(&cycles),
	       charge_mib());
}

int main(int argc, char **argv)
{
	options(argc, argv, &times);
	blocks_fill(1);
	if (!strcmp(mode, "cycle"))
		run_cycle();
	else
		run_beside();
	return 0;
}
