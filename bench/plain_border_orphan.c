/* SPDX-License-Identifier: MIT */
/*
 * A child whose parent has gone, also one that becomes a daemon
 *
 *      plain_border_orphan [-b BLOCK] [-t TOTAL] [-p PERCENT] [-s SECONDS] [-d] [-H]
 *
 * A parent, which itself is a child of the program that prints, fills TOTAL bytes, forks and
 * exits. The child begins a session. With -d it drops. Then it rewrites PERCENT of each
 * block (100, 10, 0), and sleeps. At the end it checks its bytes.
 *
 * The program prints the memory SECONDS after the rewrite, and the time of the rewrite.
 */
#include "bench/border.h"

/* The bytes of a block that are rewritten, from its start. */
static size_t part(void)
{
	return (size_t)((double)block_bytes * percent / 100) & -PAGE;
}

static bool bytes_are_right(void)
{
	for (size_t i = 0; i < block_count; i++)
		for (size_t k = 0; k < block_bytes; k += 16 * PAGE)
			if (blocks[i][k] != (k < part() ? 2 : 1))
				return false;
	return true;
}

/* Waits for the parent's end, works, tells the time, and waits until the pipe is closed. */
static void orphan(int parent, int stop, int tell)
{
	double t0;
	char byte;

	if (read(parent, &byte, 1) != 0 || setsid() < 0)
		_exit(1);
	if (given['d'])
		drop();
	t0 = now_ns();
	for (size_t i = 0; i < block_count; i++)
		memset(blocks[i], 2, part());
	t0 = us_since(t0);
	if (write(tell, &t0, sizeof(t0)) != sizeof(t0))
		_exit(1);
	if (read(stop, &byte, 1) != 0)
		_exit(1);
	_exit(bytes_are_right() ? 0 : 121);
}

static void parent(const int *stop, const int *tell)
{
	int alive[2];
	pid_t pid;

	close(stop[1]);
	if (pipe(alive))
		_exit(1);
	blocks_fill(1);
	pid = fork();
	if (pid == 0) {
		close(alive[1]);
		orphan(alive[0], stop[0], tell[1]);
	}
	_exit(pid < 0);
}

int main(int argc, char **argv)
{
	int stop[2], tell[2], status, unused;
	double rewrite;
	pid_t pid;

	options(argc, argv, &unused);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (pipe(stop) || pipe(tell))
		die("pipe");
	pid = fork();
	if (pid == 0)
		parent(stop, tell);
	if (pid < 0)
		die("fork: %s", strerror(errno));
	close(tell[1]);
	reap(pid);
	if (read(tell[0], &rewrite, sizeof(rewrite)) != sizeof(rewrite))
		die("the orphan ended early");
	sleep_ms((long)(seconds * 1000));
	printf("memory_mib=%.2f rewrite_ms=%.2f", charge_mib(), rewrite / 1e3);
	if (given['d'])
		print_drop();
	else
		putchar('\n');
	close(stop[1]);
	if (waitpid(-1, &status, 0) < 0 || status)
		die("the orphan saw wrong bytes (status %x)", status);
	return 0;
}
