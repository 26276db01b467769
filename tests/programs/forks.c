/* SPDX-License-Identifier: MIT */
/*
 * Forks with blocks in every state; every byte checked on both sides
 *
 * Fresh, full, half written, recycled, grown, shrunk, aligned, private since
 * an earlier fork. Parent and child each rewrite in another order, free
 * and allocate, and look at everything again.
 */
#include "program.h"

#include <malloc.h>

enum { STATES = 10, SIZES = 8 };

static const size_t sizes[SIZES] = {
	3000, 4096, 20000, 65536, 100001, 600000, MIB, 2 * MIB + 7,
};

/* What it holds: `full` bytes of the pattern, then zeroes or anything. */
struct block {
	unsigned char *p;
	size_t bytes, full;
	uint64_t seed;
	int zero;
};

static struct block blocks[STATES * SIZES];

static void make(struct block *b, int state, size_t bytes, uint64_t seed)
{
	void *p = NULL;

	b->bytes = b->full = bytes;
	b->seed = seed;
	b->zero = 0;
	switch (state) {
	case 0: /* never touched */
		b->p = get(bytes);
		b->full = 0;
		return;
	case 1: /* zeroes */
		b->p = calloc(1, bytes);
		b->full = 0;
		b->zero = 1;
		check(b->p != NULL);
		return;
	case 2: /* half written */
		b->p = calloc(1, bytes);
		b->full = bytes / 2;
		b->zero = 1;
		break;
	case 3: /* recycled */
		free(get_filled(bytes, 1));
		b->p = get(bytes);
		break;
	case 4: /* grown */
		b->p = realloc(get_filled(bytes / 3, seed), bytes);
		break;
	case 5: /* shrunk */
		b->p = realloc(get_filled(3 * bytes, seed), bytes);
		break;
	case 6:
		check(posix_memalign(&p, 2 * MIB, bytes) == 0);
		b->p = p;
		break;
	case 7:
		b->p = memalign(PAGE, bytes);
		break;
	case 8: /* the first page only */
		b->p = calloc(1, bytes);
		b->full = bytes < 4096 ? bytes : 4096;
		b->zero = 1;
		break;
	default:
		b->p = get(bytes);
	}
	check(b->p != NULL);
	fill(b->p, b->full, seed);
}

static void check_block(const struct block *b)
{
	if (b->p == NULL)
		return;
	check(holds(b->p, b->full, b->seed));
	if (b->zero)
		check(all(b->p + b->full, b->bytes - b->full, 0));
}

static void check_all(void)
{
	size_t i;

	for (i = 0; i < COUNT(blocks); i++)
		check_block(&blocks[i]);
}

static void rewrite(uint64_t seed, size_t step)
{
	size_t i;

	for (i = seed % step; i < COUNT(blocks); i += step) {
		struct block *b = &blocks[i];

		if (b->p == NULL)
			continue;
		b->full = b->bytes;
		b->seed = seed + i;
		fill(b->p, b->bytes, b->seed);
	}
}

/* Frees some and makes new ones in their place. */
static void renew(uint64_t seed, size_t step)
{
	size_t i;

	for (i = seed % step; i < COUNT(blocks); i += step) {
		free(blocks[i].p);
		make(&blocks[i], (int)(i + seed) % STATES, sizes[i % SIZES],
		     seed + i);
	}
}

static void free_all(void)
{
	size_t i;

	for (i = 0; i < COUNT(blocks); i++) {
		free(blocks[i].p);
		blocks[i].p = NULL;
	}
}

/* ---- Children ------------------------------------------------------------ */

static int to_child[2], to_parent[2];

static void looks(void *arg)
{
	(void)arg;
	check_all();
}

static void lives_on(void *arg)
{
	uint64_t seed = *(uint64_t *)arg;

	check_all();
	rewrite(seed, 2);
	check_all();
	gate_open(to_parent);
	gate_wait(to_child);
	check_all();
	renew(seed + 1, 3);
	check_all();
	free_all();
	malloc_trim(0);
	renew(seed + 2, 1);
	check_all();
}

static void waits(void *arg)
{
	(void)arg;
	gate_wait(to_child);
	check_all();
	free_all();
}

int main(void)
{
	uint64_t seed;
	pid_t child[8];
	size_t i;
	int n;

	gate_make(to_child);
	gate_make(to_parent);
	for (i = 0; i < COUNT(blocks); i++)
		make(&blocks[i], (int)(i / SIZES), sizes[i % SIZES], i + 7);
	check_all();
	in_child(looks, NULL);
	for (n = 0; n < 8; n++) {
		seed = 1000 * (uint64_t)(n + 1);
		child[0] = start(lives_on, &seed);
		if (n % 2)
			rewrite(seed + 500, 3);
		gate_wait(to_parent);
		check_all();
		rewrite(seed + 600, 4);
		gate_open(to_child);
		renew(seed + 700, 5);
		check_all();
		finish(child[0]);
		check_all();
	}
	/* Several at once, each of another moment. */
	for (n = 0; n < 8; n++) {
		child[n] = start(waits, NULL);
		rewrite(90000 + 100 * (uint64_t)n, 3);
		renew(95000 + 100 * (uint64_t)n, 6);
	}
	free_all();
	malloc_trim(0);
	renew(99000, 1);
	for (n = 0; n < 8; n++)
		gate_open(to_child);
	for (n = 0; n < 8; n++)
		finish(child[n]);
	check_all();
	free_all();
	puts("forks: done");
	return 0;
}
