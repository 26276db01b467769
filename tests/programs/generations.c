/* SPDX-License-Identifier: MIT */
/*
 * Many forks cost nothing in the long run
 *
 *   a chain    each process forks the next one and ends; the last one has
 *              what the first one made, and what each of them added
 *   for ever   one process forks children, which end or stay for a while, and
 *              rewrites a part of its memory each time
 *
 * Both must not grow: not in descriptors, not in mappings, not in pages.
 */
#include "memory.h"

#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>

enum { KEPT = 50, CHURNED = 40, WINDOW = 5, BLOCKS = 6, STAY = 4 };
enum { DESCRIPTORS = 64 };

static const size_t bytes = MIB + 20480; /* neighbours differ in length */
static unsigned char *blocks[KEPT];
static uint64_t seeds[KEPT];
static int to_parent[2];
static pid_t parent;

static size_t size_of(int i)
{
	return bytes + (size_t)i * PAGE;
}

static void make(int i, uint64_t seed)
{
	free(blocks[i]);
	seeds[i] = seed;
	blocks[i] = get_filled(size_of(i), seed);
}

static void check_blocks(int from, int to)
{
	for (; from < to; from++)
		check(holds(blocks[from], size_of(from), seeds[from]));
}

static void last_one(void (*body)(void *))
{
	in_child(body, NULL);
	gate_wait(to_parent);
}

/* The next generation goes on; this one ends. */
static void next_generation(void)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	check(child >= 0);
	if (child > 0)
		_exit(0);
}

static void keep_all(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < KEPT; i++) {
		make(i, (uint64_t)i);
		check_blocks(i < WINDOW ? 0 : i - WINDOW, i);
		next_generation();
	}
	check_blocks(0, KEPT);
	check(held_now().descriptors < DESCRIPTORS);
	check(held_now().mappings < 100 + 4 * KEPT);
	gate_open(to_parent);
}

static void keep_few(void *arg)
{
	struct held held;
	int i;

	(void)arg;
	for (i = 0; i < CHURNED; i++) {
		make(i % WINDOW, (uint64_t)i);
		check_blocks(0, i < WINDOW ? i : WINDOW);
		next_generation();
	}
	malloc_trim(0);
	held = held_now();
	check(held.descriptors < DESCRIPTORS);
	check(held.mappings < 200);
	check(held.memfd + held.anonymous < 3 * WINDOW * bytes);
	gate_open(to_parent);
}

static void ends(void *arg)
{
	check_blocks(0, *(int *)arg);
}

static void stays(void *arg)
{
	/* If a check fails nothing else ends it. */
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	check(getppid() == parent);
	ends(arg);
	pause();
}

static void for_ever(int forks, int stay)
{
	struct held first = { 0, 0, 0, 0 }, now;
	int n, count = BLOCKS, status;
	pid_t old[STAY] = { 0 }, *place;

	for (n = 0; n < BLOCKS; n++)
		make(n, (uint64_t)n);
	for (n = 0; n < forks; n++) {
		if (stay) {
			place = &old[n % STAY];
			if (*place != 0) {
				check(kill(*place, SIGKILL) == 0);
				check(waitpid(*place, &status, 0) == *place);
			}
			*place = start(stays, &count);
		} else {
			in_child(ends, &count);
		}
		make(n % BLOCKS, (uint64_t)n);
		fill(blocks[n * 5 % BLOCKS], 64 * KIB, (uint64_t)n);
		fill(blocks[n * 5 % BLOCKS], 64 * KIB,
		     seeds[n * 5 % BLOCKS]);
		check_blocks(0, BLOCKS);
		if (n == forks / 4)
			first = held_now();
	}
	for (n = 0; n < STAY; n++)
		if (old[n] != 0) {
			check(kill(old[n], SIGKILL) == 0);
			check(waitpid(old[n], &status, 0) == old[n]);
		}
	now = held_now();
	check(now.descriptors <= first.descriptors + 8);
	check(now.mappings <= first.mappings + 64);
	check(now.memfd + now.anonymous <
	      first.memfd + first.anonymous + 2 * BLOCKS * bytes);
}

/* An argument: so many times longer. */
int main(int argc, char **argv)
{
	int times = argc > 1 ? atoi(argv[1]) : 1;

	parent = getpid();
	gate_make(to_parent);
	last_one(keep_all);
	last_one(keep_few);
	for_ever(100 * times, 0);
	for_ever(50 * times, 1);
	puts("generations: done");
	return 0;
}
