/* SPDX-License-Identifier: MIT */
/*
 * The time of fork() itself, with much memory in large blocks
 *
 * A plain program: it knows nothing of cowshed and runs with or without the shim. It
 * fills TOTAL bytes in blocks of malloc, then forks again and again. Each child exits at
 * once, and the parent waits for it before the next fork.
 *
 *      plain_fork [-b BLOCK] [-t TOTAL] [-n FORKS] [-d SOCKETS] [-H]
 *
 * -d opens sockets, as a server with clients has them. -H advises huge pages for every block. The program prints how much of its memory is in
 * anonymous huge pages. For each fork it prints the pause of the caller and the time
 * until the child is gone, in microseconds.
 */
#include "bench/common.h"

#include <sys/socket.h>

int main(int argc, char **argv)
{
	size_t block = 64 * MIB, total = 4 * GIB, count;
	int forks = 10, sockets = 0;
	bool huge = false;
	char **blocks;
	double t0;

	OPTIONS({ 'b', .size = &block }, { 't', .size = &total }, { 'n', .count = &forks },
	        { 'd', .count = &sockets }, { 'H', .flag = &huge });
	for (int i = 0; i < sockets; i++)
		if (socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0)
			die("no more sockets");
	t0 = now_ns();
	blocks = blocks_of(total, block, huge, 1, &count);
	printf("fill_ms=%.3f huge_mib=%.0f\n", ms_since(t0),
	       file_kb("/proc/self/smaps_rollup", "AnonHugePages") / MIB);
	fflush(stdout);

	for (size_t i = 1; i <= (size_t)forks; i++) {
		double pause_us;
		pid_t pid;

		t0 = now_ns();
		pid = forked(&pause_us);
		if (pid == 0)
			_exit(blocks[i % count][i] != 1);
		reap(pid);
		printf("fork=%zu pause_us=%.2f gone_us=%.2f\n", i, pause_us, us_since(t0));
	}
	for (size_t i = 0; i < count; i++)
		free(blocks[i]);
	free(blocks);
	return 0;
}
