/* SPDX-License-Identifier: MIT */
/*
 * Children of children, orphans, and processes made by _Fork()
 *
 * _Fork() runs no handlers, so an allocator that prepares for fork in one does not
 * learn of it. Both processes must still have the memory of that moment. The child
 * may not call malloc, but it may read and write its memory.
 */
#include "program.h"

#include <malloc.h>
#include <signal.h>

enum { BLOCKS = 6, DEEP = 8 };

static const size_t sizes[BLOCKS] = {
	5000, 65536, 300000, MIB, 3 * MIB, 6 * MIB + 1,
};
static unsigned char *blocks[BLOCKS];
static uint64_t seeds[BLOCKS];
static int to_child[2], to_parent[2];

static void check_all(void)
{
	int i;

	for (i = 0; i < BLOCKS; i++)
		check(holds(blocks[i], sizes[i], seeds[i]));
}

static void rewrite(uint64_t seed, int step)
{
	int i;

	for (i = 0; i < BLOCKS; i += step) {
		seeds[i] = seed + (uint64_t)i;
		fill(blocks[i], sizes[i], seeds[i]);
	}
}

static void renew(uint64_t seed)
{
	int i = (int)(seed % BLOCKS);

	free(blocks[i]);
	seeds[i] = seed;
	blocks[i] = get_filled(sizes[i], seed);
}

static void begets(void *arg)
{
	int depth = *(int *)arg, next = depth + 1;
	pid_t child;

	check_all();
	rewrite(1000 * (uint64_t)depth, depth % 3 + 1);
	renew(1000 * (uint64_t)depth + 11);
	if (depth == DEEP)
		return;
	child = start(begets, &next);
	rewrite(1000 * (uint64_t)depth + 500, 2);
	renew(1000 * (uint64_t)depth + 13);
	check_all();
	finish(child);
	check_all();
}

static void orphan(void *arg)
{
	(void)arg;
	gate_wait(to_child);
	check_all();
	rewrite(700, 1);
	renew(701);
	check_all();
	gate_open(to_parent);
}

static void leaves(void *arg)
{
	rewrite(600, 2);
	(void)start(orphan, arg);
	rewrite(650, 1);
}

/* The middle one is gone before the youngest looks. */
static void orphans(void)
{
	in_child(leaves, NULL);
	rewrite(800, 1);
	renew(801);
	malloc_trim(0);
	gate_open(to_child);
	gate_wait(to_parent);
	check_all();
}

static void looks(void *arg)
{
	(void)arg;
	check_all();
}

static void without_handlers(void)
{
	pid_t child;
	int n;

	for (n = 0; n < 5; n++) {
		fflush(NULL);
		child = _Fork();
		check(child >= 0);
		if (child == 0) {
			check_all();
			rewrite(2000, 1);
			check_all();
			gate_open(to_parent);
			gate_wait(to_child);
			check_all();
			_exit(0);
		}
		if (n % 2)
			rewrite(3000 + (uint64_t)n, 2);
		gate_wait(to_parent);
		check_all();
		rewrite(4000 + (uint64_t)n, 1);
		renew(4500 + (uint64_t)n);
		gate_open(to_child);
		finish(child);
		check_all();
		in_child(looks, NULL);
	}
}

/* Killed in the middle of rewriting. */
static void never_ends(void *arg)
{
	uint64_t n;

	(void)arg;
	gate_open(to_parent);
	for (n = 0;; n++) {
		rewrite(n, 1);
		renew(n);
	}
}

static void killed(void)
{
	pid_t child;
	int n, status;

	for (n = 0; n < 10; n++) {
		child = start(never_ends, NULL);
		gate_wait(to_parent);
		rewrite(5000 + (uint64_t)n, 2);
		check(kill(child, SIGKILL) == 0);
		check((n % 2 ? waitpid(child, &status, 0)
		             : wait4(child, &status, 0, NULL)) == child);
		check(WIFSIGNALED(status));
		check_all();
	}
}

int main(void)
{
	int i, depth = 1;

	gate_make(to_child);
	gate_make(to_parent);
	for (i = 0; i < BLOCKS; i++)
		blocks[i] = get(sizes[i]);
	rewrite(1, 1);
	begets(&depth);
	orphans();
	without_handlers();
	killed();
	for (i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	puts("descendants: done");
	return 0;
}
