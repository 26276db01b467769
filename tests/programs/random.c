/* SPDX-License-Identifier: MIT */
/*
 * Random programs of malloc, against a model
 *
 * random SEED STEPS LARGEST: the model of a block is its seed and its sizes;
 * each step does one thing to one block, forks included, and checks it; now
 * and then all are checked. The same seed repeats a failure.
 */
#include "program.h"

#include <malloc.h>
#include <sys/mman.h>

enum { BLOCKS = 24 };

struct block {
	unsigned char *p;
	size_t bytes;
	uint64_t seed;
};

static struct block blocks[BLOCKS];
static uint64_t state;
static size_t largest;

static void check_block(const struct block *b)
{
	check(b->p == NULL || holds(b->p, b->bytes, b->seed));
}

static void check_all(void)
{
	int i;

	for (i = 0; i < BLOCKS; i++)
		check_block(&blocks[i]);
}

static size_t draw_bytes(void)
{
	return 1 + below(&state, below(&state, 4) ? largest : largest / 50 + 1);
}

static void write_block(struct block *b)
{
	b->seed = next_random(&state);
	fill(b->p, b->bytes, b->seed);
}

static void make(struct block *b)
{
	size_t alignment = (size_t)8 << below(&state, 16);
	void *p = NULL;

	free(b->p);
	b->bytes = draw_bytes();
	switch (below(&state, 4)) {
	case 0:
		p = calloc(1, b->bytes);
		check(p != NULL && all(p, b->bytes, 0));
		break;
	case 1:
		check(posix_memalign(&p, alignment, b->bytes) == 0);
		check((uintptr_t)p % alignment == 0);
		break;
	default:
		p = get(b->bytes);
	}
	b->p = p;
	check(malloc_usable_size(b->p) >= b->bytes);
	write_block(b);
}

static void resize(struct block *b)
{
	size_t more = draw_bytes();

	b->p = realloc(b->p, more);
	check(b->p != NULL);
	check(holds(b->p, more < b->bytes ? more : b->bytes, b->seed));
	b->bytes = more;
	write_block(b);
}

static void run(int steps, int forks);

static void goes_on(void *arg)
{
	(void)arg;
	check_all();
	run(30, 1);
	check_all();
}

static void step(int forks)
{
	struct block *b = &blocks[below(&state, BLOCKS)];
	size_t what = below(&state, 100), at;

	if (b->p == NULL || what < 20) {
		make(b);
	} else if (what < 40) {
		resize(b);
	} else if (what < 55) {
		free(b->p);
		b->p = NULL;
	} else if (what < 85) {
		write_block(b);
	} else if (what < 90) {
		/* Touches without changing. */
		for (at = 0; at < b->bytes; at += 3000)
			((volatile unsigned char *)b->p)[at] = b->p[at];
	} else if (what < 93) {
		malloc_trim(0);
	} else if (what < 97 && forks > 0) {
		in_child(goes_on, NULL);
	}
	check_block(b);
}

static void run(int steps, int forks)
{
	int i;

	for (i = 0; i < steps; i++) {
		/* At most two generations. */
		step(forks == 1 ? 0 : forks);
		if (i % 32 == 0)
			check_all();
	}
}

int main(int argc, char **argv)
{
	int steps, i;

	check(argc == 4);
	state = (uint64_t)atol(argv[1]) * 7919 + 1;
	steps = atoi(argv[2]);
	largest = (size_t)atol(argv[3]);
	run(steps, 2);
	check_all();
	printf("random: %016llx\n", (unsigned long long)next_random(&state));
	for (i = 0; i < BLOCKS; i++)
		free(blocks[i].p);
	return 0;
}
