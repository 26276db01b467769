/* SPDX-License-Identifier: MIT */
/*
 * The blocks of a storm: what they must hold, and what becomes of them
 *
 * A block comes from malloc() or from mmap(). It is cut into stripes; each has a seed, from
 * which all of its bytes follow (0: they are zero). The seeds lie in plain variables, which
 * the kernel copies at a fork, so a child knows what its blocks must hold.
 *
 * Where the library is loaded, blocks are announced for rewriting, too, and cloned. Without
 * it these functions do nothing: its names are weak here.
 */
#ifndef COWSHED_TESTS_STRESS_BLOCKS_H
#define COWSHED_TESTS_STRESS_BLOCKS_H

#include <sys/mman.h>

#include "../../include/cowshed.h"
#include "../programs/program.h"

#pragma weak cow_rewrite_begin
#pragma weak cow_rewrite_end
#pragma weak cow_storage_data
#pragma weak cow_storage_from_ptr
#pragma weak cow_storage_lazy_clone
#pragma weak cow_storage_unref
#pragma weak cow_trim
#pragma weak cow_write_intent

enum { STRIPE = 4096, LARGEST_STRIPES = 2048 };

struct block {
	unsigned char *p;
	size_t bytes;
	int mapped; /* by mmap() */
	uint64_t seeds[LARGEST_STRIPES];
};

static size_t largest; /* bytes of a block */

/* Ends the program. */
static void wrong(const struct block *b, const unsigned char *p, size_t i, const char *when);

static size_t stripes(size_t bytes)
{
	return (bytes + STRIPE - 1) / STRIPE;
}

static size_t stripe_bytes(const struct block *b, size_t i)
{
	size_t rest = b->bytes - i * STRIPE;

	return rest < STRIPE ? rest : STRIPE;
}

/* Has the memory at `p` what the block must hold? */
static void look_at(const struct block *b, const unsigned char *p, const char *when)
{
	size_t i;

	for (i = 0; i < stripes(b->bytes); i++) {
		const unsigned char *at = p + i * STRIPE;
		size_t n = stripe_bytes(b, i);

		if (b->seeds[i] ? !holds(at, n, b->seeds[i]) : !all(at, n, 0))
			wrong(b, p, i, when);
	}
}

static void rewrite(struct block *b, size_t from, size_t to, uint64_t seed)
{
	for (; from < to; from++) {
		b->seeds[from] = seed + from;
		fill(b->p + from * STRIPE, stripe_bytes(b, from), seed + from);
	}
}

/* As many of 5 KiB as of 5 MiB. */
static size_t some_bytes(uint64_t *random)
{
	size_t most = KIB << below(random, 13);

	if (most > largest)
		most = largest;
	return most / 2 + 1 + below(random, most / 2);
}

static void make(struct block *b, uint64_t *random)
{
	size_t how = below(random, 8);
	void *p = NULL;

	b->bytes = some_bytes(random);
	b->mapped = how < 2;
	if (b->mapped) {
		p = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE,
		         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(p != MAP_FAILED);
	} else if (how == 2) {
		p = calloc(1, b->bytes);
	} else if (how == 3) {
		check(posix_memalign(&p, PAGE << below(random, 10), b->bytes) == 0);
	} else {
		p = malloc(b->bytes);
	}
	check(p != NULL);
	b->p = p;
	if (how == 1 || how == 2)
		memset(b->seeds, 0, stripes(b->bytes) * sizeof(*b->seeds));
	else
		rewrite(b, 0, stripes(b->bytes), next_random(random) | 1);
}

static void drop(struct block *b)
{
	if (b->mapped)
		check(munmap(b->p, b->bytes) == 0);
	else
		free(b->p);
	b->p = NULL;
}

static void resize(struct block *b, uint64_t *random)
{
	size_t old = b->bytes, bytes = some_bytes(random);
	void *p = b->mapped ? mremap(b->p, old, bytes, MREMAP_MAYMOVE) : realloc(b->p, bytes);

	check(p != NULL && p != MAP_FAILED);
	b->p = p;
	b->bytes = bytes;
	if (bytes > old)
		rewrite(b, old / STRIPE, stripes(bytes), next_random(random) | 1);
}

static void copy(struct block *to, const struct block *from, uint64_t *random)
{
	size_t n = to->bytes < from->bytes ? to->bytes : from->bytes, at;

	n = n / STRIPE;
	if (n == 0)
		return;
	n = 1 + below(random, n);
	at = below(random, to->bytes / STRIPE - n + 1);
	memcpy(to->p + at * STRIPE, from->p, n * STRIPE);
	memcpy(to->seeds + at, from->seeds, n * sizeof(*to->seeds));
}

static void rewrite_some(struct block *b, uint64_t *random)
{
	size_t n = stripes(b->bytes), from = below(random, n);

	rewrite(b, from, from + 1 + below(random, n - from), next_random(random) | 1);
}

/* Gives back pages of a mapping. */
static void empty_some(struct block *b, uint64_t *random)
{
	size_t n = b->bytes / PAGE, each = PAGE / STRIPE, from, pages;

	if (!b->mapped || n == 0)
		return;
	from = below(random, n);
	pages = 1 + below(random, n - from);
	check(madvise(b->p + from * PAGE, pages * PAGE, MADV_DONTNEED) == 0);
	memset(b->seeds + from * each, 0, pages * each * sizeof(*b->seeds));
}

/* ---- With the library ---------------------------------------------------- */

/* Says that it will rewrite a part, or all, and sometimes does. */
static void announce(struct block *b, uint64_t *random)
{
	size_t n = stripes(b->bytes), from = below(random, 2) ? 0 : below(random, n);
	size_t to = from == 0 ? n : from + 1 + below(random, n - from);
	size_t end = to == n ? b->bytes : to * STRIPE;
	struct cow_range range = { b->p + from * STRIPE, end - from * STRIPE };
	int everything = below(random, 2) == 0;

	if (!cow_write_intent)
		return;
	check(cow_write_intent(&range, 1, everything ? COW_WRITE_ALL : COW_WRITE_AUTO, NULL) == 0);
	if (everything)
		rewrite(b, from, to, next_random(random) | 1);
	if (below(random, 8) == 0)
		(void)cow_trim();
	look_at(b, b->p, "after an intent");
}

/* The bytes of all stripes, from another seed each, at `p`. */
static void fill_for(const struct block *b, unsigned char *p, uint64_t seed)
{
	size_t i;

	for (i = 0; i < stripes(b->bytes); i++)
		fill(p + i * STRIPE, stripe_bytes(b, i), seed + i);
}

#endif
