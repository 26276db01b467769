/* SPDX-License-Identifier: MIT */
/*
 * Relatives that are strangers to each other, and free most of what they share
 *
 *      plain_border_free [-b BLOCK] [-t TOTAL] [-s SECONDS] [-d] [-H]
 *
 * The master fills TOTAL bytes in blocks and forks two workers, which drop. Each worker
 * frees nine blocks of ten and lives. Then the master frees nine of ten, too. All keep the
 * same blocks; with -d each keeps others. The program prints the memory of all processes
 * before, SECONDS after the workers freed, and SECONDS after the master freed.
 *
 * The blocks of a worker are checked at its end, as those of the other programs are.
 */
#include "bench/border.h"

enum { WORKERS = 2 };

static void free_most(int who)
{
	for (size_t i = 0; i < block_count; i++)
		if (i % 10 != (size_t)(given['d'] ? who : 0)) {
			free(blocks[i]);
			blocks[i] = NULL;
		}
}

static pid_t freer(int who, const int *go, const int *done)
{
	pid_t pid = fork();
	char byte;

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid)
		return pid;
	drop();
	if (read(go[0], &byte, 1) != 1)
		_exit(1);
	free_most(who);
	if (write(done[1], "", 1) != 1)
		_exit(1);
	worker_stay(1);
}

/* Lets all workers free, and waits until they have done so. */
static void let_free(const int *go, const int *done)
{
	char byte;

	for (int i = 0; i < WORKERS; i++)
		if (write(go[1], "", 1) != 1 || read(done[0], &byte, 1) != 1)
			die("a worker ended early");
}

int main(int argc, char **argv)
{
	double before, after_workers;
	int go[2], done[2], unused;
	pid_t pids[WORKERS];

	options(argc, argv, &unused);
	blocks_fill(1);
	if (pipe(go) || pipe(done))
		die("pipe");
	sigterm_block();
	for (int i = 0; i < WORKERS; i++)
		pids[i] = freer(i + 1, go, done);
	before = charge_mib();
	let_free(go, done);
	sleep_ms((long)(seconds * 1000));
	after_workers = charge_mib();
	free_most(0);
	sleep_ms((long)(seconds * 1000));
	printf("before_mib=%.2f workers_mib=%.2f all_mib=%.2f", before, after_workers,
	       charge_mib());
	print_drop();
	workers_end(pids, WORKERS);
	return 0;
}
