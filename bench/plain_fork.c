/* SPDX-License-Identifier: MIT */
/*
 * The time of fork() itself, with much memory in large blocks
 *
 * A plain program: it knows nothing of cowshed and runs with or without the shim. It
 * fills TOTAL bytes in blocks of malloc, then forks again and again. Each child exits at
 * once, and the parent waits for it before the next fork.
 *
 *      plain_fork [-b BLOCK] [-t TOTAL] [-n FORKS] [-H]
 *
 * -H advises huge pages for every block. The program prints how much of its memory is in
 * anonymous huge pages. For each fork it prints the pause of the caller and the time
 * until the child is gone, in microseconds.
 */
#include "bench/common.h"

#include <sys/wait.h>

static char *block_new(size_t bytes, bool huge)
{
	char *p = malloc(bytes);

	if (!p)
		die("malloc of %zu bytes failed", bytes);
	if (huge) {
		char *start = (char *)(((uintptr_t)p + PAGE - 1) & -PAGE);

		madvise(start, (p + bytes - start) & -PAGE, MADV_HUGEPAGE);
	}
	memset(p, 1, bytes);
	return p;
}

int main(int argc, char **argv)
{
	size_t block = 64 * MIB, total = 4 * GIB, count;
	int forks = 10, c;
	bool huge = false;
	char **blocks;
	double t0;

	while ((c = getopt(argc, argv, "b:t:n:H")) != -1)
		switch (c) {
		case 'b': block = size_parse(optarg); break;
		case 't': total = size_parse(optarg); break;
		case 'n': forks = atoi(optarg); break;
		case 'H': huge = true; break;
		default: die("usage: plain_fork [-b B] [-t T] [-n N] [-H]");
		}
	count = total / block;
	blocks = calloc(count + 1, sizeof(*blocks));
	if (!block || !blocks)
		die("bad size");
	t0 = now_ns();
	for (size_t i = 0; i < count; i++)
		blocks[i] = block_new(block, huge);
	t0 = now_ns() - t0;
	printf("fill_ms=%.3f huge_mib=%.0f\n", t0 / 1e6,
	       file_kb("/proc/self/smaps_rollup", "AnonHugePages") / MIB);
	fflush(stdout);

	for (int i = 1; i <= forks; i++) {
		double t1, t2;
		int status;
		pid_t pid;

		t0 = now_ns();
		pid = fork();
		if (pid == 0)
			_exit(count && blocks[i % count][i] != 1);
		t1 = now_ns();
		if (pid < 0)
			die("fork: %s", strerror(errno));
		if (waitpid(pid, &status, 0) != pid || status)
			die("the child saw wrong bytes or crashed");
		t2 = now_ns();
		printf("fork=%d pause_us=%.2f gone_us=%.2f\n", i,
		       (t1 - t0) / 1e3, (t2 - t0) / 1e3);
	}
	for (size_t i = 0; i < count; i++)
		free(blocks[i]);
	free(blocks);
	return 0;
}
