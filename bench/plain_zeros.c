/* SPDX-License-Identifier: MIT */
/*
 * A large zeroed block: read, written, written in part, forked
 *
 *      plain_zeros [-s BYTES] [-w PERCENT] [-r] [-f FORKS]
 *
 * Gets BYTES (1G) by calloc. -w writes the first PERCENT of it, -r reads one byte of every
 * page. Both may be given: the reads come first. The time of both is ms=. Then it forks FORKS
 * times (0). Each child looks at one byte and exits; the pauses of the caller are printed. A
 * tenth of the block is written between two forks. plain_measure measures the memory from
 * outside.
 */
#include "bench/common.h"

static void fork_once(char *p, size_t bytes, int i)
{
	double us;
	pid_t pid = forked(&us);

	if (pid == 0)
		_exit(p[bytes - 1] != 0 && p[bytes - 1] != 1);
	reap(pid);
	printf("fork=%d pause_us=%.2f\n", i, us);
	memset(p + bytes / 10 * (size_t)(i % 10), 1, bytes / 10);
}

int main(int argc, char **argv)
{
	size_t bytes = GIB, percent = 0;
	bool reads = false;
	int forks = 0;
	long sum = 0;
	double t0;
	char *p;

	OPTIONS({ 's', .size = &bytes }, { 'w', .size = &percent }, { 'r', .flag = &reads },
	        { 'f', .count = &forks });
	t0 = now_ns();
	p = calloc(1, bytes);
	if (!p)
		die("calloc: %s", strerror(errno));
	for (size_t at = 0; reads && at < bytes; at += PAGE)
		sum += *(volatile char *)(p + at);
	memset(p, 1, bytes / 100 * percent);
	printf("ms=%.2f\n", ms_since(t0));
	if (sum)
		die("calloc gave bytes that are not zero");
	for (int i = 1; i <= forks; i++)
		fork_once(p, bytes, i);
	free(p);
	return 0;
}
