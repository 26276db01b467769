/* SPDX-License-Identifier: MIT */
/*
 * Test support: one storage or block in every state there is
 */
#include "tests/support/herd.h"

#include <stdlib.h>
#include <string.h>

static const size_t sizes[HERD_KINDS] = {
	[HERD_OWNED] = 3 * MIB,
	[HERD_SMALL] = 5000,
	[HERD_TINY] = 77,
	[HERD_LAZY_A] = 2 * MIB + 1,
	[HERD_LAZY_B] = 2 * MIB + 1,
	[HERD_VIEWED] = 3 * MIB,
	[HERD_VIEW] = 3 * MIB,
	[HERD_COPY] = 3 * MIB,
	[HERD_ZERO] = MIB,
	[HERD_TRANSPARENT] = 4 * MIB,
	[HERD_TRANSPARENT_SMALL] = 9000,
	[HERD_CLONED] = 2 * MIB,
	[HERD_CLONE] = 2 * MIB,
	[HERD_EXPOSED_VIEW] = 3 * MIB,
	[HERD_HELD] = 600 * KIB,
	[HERD_EXTERNAL] = 300000,
	[HERD_BLOCK] = 64 * KIB,
	[HERD_BLOCK_LARGE] = 5 * MIB + 100,
	[HERD_BLOCK_ZERO] = 2 * MIB,
};

static unsigned char *writable(struct animal *animal)
{
	if (animal->block != NULL)
		return animal->block;
	if (animal->exposed != NULL)
		return animal->exposed;
	return mut(animal->storage);
}

static const unsigned char *readable(const struct animal *animal)
{
	return animal->block != NULL ? animal->block : data(animal->storage);
}

static void write_new(struct animal *animal, uint64_t seed)
{
	animal->seed = seed;
	fill(writable(animal), animal->bytes, seed);
}

static struct cow_storage *new_external(size_t bytes)
{
	struct cow_device cpu = { COW_DEVICE_CPU, 0 };
	void *heap = malloc(bytes);
	struct cow_data_ptr ptr = cow_data_ptr_make(heap, heap, free, cpu);
	struct cow_storage *storage = NULL;

	must(heap != NULL);
	ok(cow_storage_new_external(&ptr, bytes, NULL, &storage));
	return storage;
}

static struct cow_storage *new_held(size_t bytes, uint64_t seed)
{
	unsigned char *block = new_block(bytes, 0);
	struct cow_storage *storage = NULL;

	fill(block, bytes, seed);
	ok(cow_storage_from_ptr(block, NULL, &storage));
	cow_block_free(block);
	return storage;
}

static void share(struct animal *from, struct animal *to)
{
	to->storage = lazy(from->storage);
	to->seed = from->seed;
}

static void make_animal(struct animal *a, int kind, uint64_t seed)
{
	a->bytes = sizes[kind];
	switch (kind) {
	case HERD_LAZY_B:
	case HERD_VIEW:
	case HERD_COPY:
	case HERD_CLONE:
	case HERD_EXPOSED_VIEW:
		break; /* herd_make() clones them */
	case HERD_ZERO:
		a->storage = new_storage(a->bytes, COW_STORAGE_ZERO);
		break;
	case HERD_TRANSPARENT:
	case HERD_TRANSPARENT_SMALL:
	case HERD_CLONED:
		a->storage = new_storage(a->bytes, COW_STORAGE_TRANSPARENT);
		a->exposed = expose(a->storage);
		write_new(a, seed);
		break;
	case HERD_HELD:
		a->seed = seed;
		a->storage = new_held(a->bytes, a->seed);
		a->exposed = expose(a->storage);
		break;
	case HERD_EXTERNAL:
		a->storage = new_external(a->bytes);
		write_new(a, seed);
		break;
	case HERD_BLOCK:
	case HERD_BLOCK_LARGE:
		a->block = new_block(a->bytes, 0);
		write_new(a, seed);
		break;
	case HERD_BLOCK_ZERO:
		a->block = new_block(a->bytes, COW_BLOCK_ZERO);
		break;
	default:
		a->storage = new_storage(a->bytes, 0);
		write_new(a, seed);
	}
}

void herd_make(struct herd *herd, uint64_t seed)
{
	struct animal *all = herd->animals;
	int i;

	memset(herd, 0, sizeof(*herd));
	for (i = 0; i < HERD_KINDS; i++)
		make_animal(&all[i], i, seed + (uint64_t)i);
	share(&all[HERD_LAZY_A], &all[HERD_LAZY_B]);
	share(&all[HERD_VIEWED], &all[HERD_VIEW]);
	share(&all[HERD_VIEWED], &all[HERD_COPY]);
	share(&all[HERD_VIEWED], &all[HERD_EXPOSED_VIEW]);
	share(&all[HERD_CLONED], &all[HERD_CLONE]);
	mut_range(all[HERD_VIEW].storage, 0, 1, COW_WRITE_BY_PAGE);
	mut_range(all[HERD_COPY].storage, 0, 1, COW_WRITE_BY_COPY);
	all[HERD_EXPOSED_VIEW].exposed =
		expose(all[HERD_EXPOSED_VIEW].storage);
	herd_touch(herd);
}

void herd_check(const struct herd *herd)
{
	size_t wrong;
	int i;

	for (i = 0; i < HERD_KINDS; i++) {
		const struct animal *a = &herd->animals[i];
		const unsigned char *bytes;

		if (a->block == NULL && a->storage == NULL)
			continue;
		bytes = readable(a);
		wrong = a->seed != 0 ? first_wrong(bytes, a->bytes, a->seed)
		                     : first_not(bytes, a->bytes, 0);
		if (wrong != a->bytes)
			ck_abort_msg("kind %d: byte %zu of %zu is wrong", i,
			             wrong, a->bytes);
	}
}

void herd_rewrite(struct herd *herd, uint64_t seed, int step)
{
	int i;

	for (i = 0; i < HERD_KINDS; i += step)
		if (herd->animals[i].block || herd->animals[i].storage)
			write_new(&herd->animals[i], seed + (uint64_t)i);
}

void herd_touch(struct herd *herd)
{
	int i;

	for (i = 0; i < HERD_KINDS; i++) {
		struct animal *a = &herd->animals[i];
		volatile unsigned char *p;
		size_t at;

		/* A lazy one would not stay lazy. */
		if (a->storage != NULL && a->exposed == NULL &&
		    i != HERD_VIEW && i != HERD_COPY)
			continue;
		if (a->block == NULL && a->storage == NULL)
			continue;
		p = writable(a);
		for (at = 0; at < a->bytes; at += 16 * PAGE)
			p[at] = p[at];
	}
}

static void let_go(struct animal *animal)
{
	if (animal->block != NULL)
		cow_block_free(animal->block);
	animal->storage = cow_storage_unref(animal->storage);
	animal->block = NULL;
	animal->exposed = NULL;
}

void herd_free_half(struct herd *herd, int half)
{
	int i;

	for (i = half; i < HERD_KINDS; i += 2)
		let_go(&herd->animals[i]);
}

void herd_free(struct herd *herd)
{
	herd_free_half(herd, 0);
	herd_free_half(herd, 1);
}
