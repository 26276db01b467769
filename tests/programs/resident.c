/* SPDX-License-Identifier: MIT */
/*
 * Memory that a program has counts in its RSS, also after forks
 *
 *   resident                 checks that
 *   resident victims MIB     the OOM killer's choice in a memory cgroup of this limit
 *
 * The kernel counts page table entries. A fork and a thaw take them away, and the OOM killer would
 * choose another program.
 */
#include "program.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define BYTES (128 * MIB)
#define BLOCK (16 * MIB)
#define BLOCKS (BYTES / BLOCK)
#define LOST 10               /* a tenth may be missing ... */
#define TWICE 4               /* ... or a quarter counted twice */
#define DEADLINE 60          /* seconds: it takes one */

static unsigned char *blocks[BLOCKS];
static size_t nblocks = BLOCKS;
static size_t before;

static size_t resident(void)
{
	unsigned long all, here;
	FILE *f = fopen("/proc/self/statm", "re");

	check(f && fscanf(f, "%lu %lu", &all, &here) == 2);
	fclose(f);
	return here * PAGE;
}

/* The kernel of a test machine may lack the advice (Linux before 5.14). */
static bool can_come_back(void)
{
	void *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool can = p != MAP_FAILED && madvise(p, PAGE, MADV_POPULATE_READ) == 0;

	check(munmap(p, PAGE) == 0);
	return can;
}

/* Waits until RSS has grown by `bytes`, more or less, and stays so. */
static void counts(size_t bytes)
{
	const struct timespec moment = { 0, 50 * 1000000 };
	time_t end = time(NULL) + DEADLINE;
	int good = 0;

	for (; good < 10 && time(NULL) < end; nanosleep(&moment, NULL)) {
		size_t now = resident() - before;

		good = now + bytes / LOST >= bytes && now <= bytes + bytes / TWICE ? good + 1 : 0;
	}
	check(good == 10);
}

/* One block alone is written page by page in an order that nobody can foresee. So its pages are
 * small at first, and the engine makes some of them huge afterwards. */
static void write_all(unsigned char value, size_t bytes)
{
	size_t n = bytes / PAGE;

	for (size_t i = 0; i < nblocks; i++)
		if (nblocks > 1)
			memset(blocks[i], value, bytes);
	for (size_t i = 0; nblocks == 1 && i < n; i++)
		memset(blocks[0] + i * 1021 % n * PAGE, value, PAGE);
}

static void sleeps(void *arg)
{
	char byte;

	check(read(*(int *)arg, &byte, 1) == 0);
	for (size_t i = 0; i < nblocks; i++)
		check(blocks[i][5] == 1);
}

/* A child that lives while its parent rewrites all, or a part of each block. */
static void rewritten_beside_child(size_t bytes)
{
	int ends[2], status;
	pid_t child;

	check(pipe(ends) == 0);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		check(close(ends[1]) == 0);
		sleeps(&ends[0]);
		_exit(0);
	}
	check(child > 0 && close(ends[0]) == 0);
	write_all(2, bytes);
	check(close(ends[1]) == 0);
	check(waitpid(child, &status, 0) == child && status == 0);
}

struct part {
	size_t blocks;
	size_t filled;    /* bytes of each block that were ever written: the rest is not to come */
	size_t rewritten; /* beside the child */
	bool drops;       /* its user, of whom the files are */
};

/* In a process of its own, because freed memory may stay for a while. */
static void blocks_count(void *arg)
{
	size_t filled = ((struct part *)arg)->filled, rewritten = ((struct part *)arg)->rewritten;

	nblocks = ((struct part *)arg)->blocks;
	before = resident();
	for (size_t i = 0; i < nblocks; i++)
		check((blocks[i] = malloc(BLOCK)) != NULL);
	write_all(1, filled);
	if (((struct part *)arg)->drops && geteuid() == 0)
		check(setresuid(65534, 65534, 65534) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
	counts(nblocks * filled);
	rewritten_beside_child(rewritten);
	counts(nblocks * filled);
	for (size_t i = 0; i < nblocks; i++) {
		check(blocks[i][5] == 2 && blocks[i][filled - 1] == (rewritten == filled) + 1);
		free(blocks[i]);
	}
}

/* Half of the limit, and half of that rewritten beside a child. */
static void large(void *arg)
{
	int *ready = arg;

	before = resident();
	for (size_t i = 0; i < nblocks; i++)
		check((blocks[i] = malloc(BLOCK)) != NULL);
	write_all(1, BLOCK);
	rewritten_beside_child(BLOCK / 2);
	counts(BYTES);
	check(write(ready[1], "", 1) == 1);
	pause();
}

static void small(void *arg)
{
	int *ready = arg;

	check((blocks[0] = malloc(3 * BLOCK)) != NULL);
	memset(blocks[0], 1, 3 * BLOCK);
	check(write(ready[1], "", 1) == 1);
	pause();
}

static pid_t begin(void (*body)(void *))
{
	int ready[2];
	char byte;
	pid_t child;

	check(pipe(ready) == 0);
	child = fork();
	if (child == 0) {
		body(ready);
		_exit(1);
	}
	check(child > 0 && close(ready[1]) == 0); /* if it dies, read() ends */
	check(read(ready[0], &byte, 1) == 1 && close(ready[0]) == 0);
	return child;
}

/* One process has half of `limit`, one three eighths of that, and a third one takes memory until one
 * of them is killed. */
static void victims(size_t limit)
{
	pid_t first, second, third, dead;
	int status;

	check(limit >= 2 * BYTES);
	first = begin(large);
	second = begin(small);
	third = fork();
	if (third == 0) {
		for (size_t at = 0; at < limit; at += MIB / 4) {
			unsigned char *p = malloc(MIB / 4);

			check(p != NULL);
			memset(p, 1, MIB / 4);
		}
		pause();
	}
	dead = waitpid(-1, &status, 0);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	puts(dead == first ? "the large one" : dead == second ? "the small one" : "the other");
	for (int i = 0; i < 3; i++) {
		pid_t all[] = { first, second, third };

		if (all[i] != dead)
			check(kill(all[i], SIGKILL) == 0 && waitpid(all[i], NULL, 0) == all[i]);
	}
}

int main(int argc, char **argv)
{
	static struct part parts[] = {
		{ BLOCKS, BLOCK, BLOCK, false },
		{ BLOCKS, BLOCK, BLOCK / 16, false },
		{ BLOCKS, BLOCK / 2, BLOCK / 2, false },
		{ BLOCKS, BLOCK / 2, BLOCK / 2, true },
		{ 1, BLOCK / 4 * 3, BLOCK / 4 * 3, false },
		{ 1, BLOCK / 4 * 3, BLOCK / 16, false },
	};

	if (argc == 3 && strcmp(argv[1], "victims") == 0) {
		victims((size_t)atoi(argv[2]) * MIB);
		return 0;
	}
	for (size_t i = 0; i < COUNT(parts) && can_come_back(); i++)
		in_child(blocks_count, &parts[i]);
	puts("resident: ok");
	return 0;
}
