/* SPDX-License-Identifier: MIT */
/*
 * Small storages: see the header.
 */
#include "core/storage/small.h"
#include "core/base/pool.h"
#include "core/memory/extent.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"

#define SMALLEST 64
#define CELLS_MAX (COW__SLAB_BYTES / SMALLEST)

struct cow__slab {
	struct cow__slab *next, *prev; /* of its class, with free cells */
	struct cow__tile *tile;
	unsigned class, cells, used;
	uint64_t taken[CELLS_MAX / 64];
};

static const uint16_t class_bytes[] = { 64,  128, 192,  256,  384,
	                                512, 768, 1024, 1536, 2048 };
#define CLASSES (sizeof(class_bytes) / sizeof(class_bytes[0]))

static struct cow__pool slabs = { .object_bytes = sizeof(struct cow__slab) };
static struct cow__slab *partial[CLASSES];

size_t
cow__small_bytes(const struct cow__slab *s)
{
	return class_bytes[s->class];
}

static unsigned
class_of(size_t bytes)
{
	unsigned c = 0;

	while (class_bytes[c] < bytes)
		c++;
	return c;
}

static void
partial_add(struct cow__slab *s)
{
	s->prev = NULL;
	s->next = partial[s->class];
	if (s->next)
		s->next->prev = s;
	partial[s->class] = s;
}

static void
partial_remove(struct cow__slab *s)
{
	if (s->next)
		s->next->prev = s->prev;
	if (s->prev)
		s->prev->next = s->next;
	else
		partial[s->class] = s->next;
}

static int
slab_new(unsigned class)
{
	struct cow__slab *s = cow__pool_take(&slabs);
	size_t dirty;
	int r;

	if (!s)
		return -ENOMEM;
	memset(s, 0, sizeof(*s));
	r = cow__extent_new(COW__SLAB_BYTES, 0, 0, &s->tile, &dirty);
	if (r < 0) {
		cow__pool_give(&slabs, s);
		return r;
	}
	s->class = class;
	s->cells = (unsigned)(COW__SLAB_BYTES / class_bytes[class]);
	for (unsigned i = s->cells; i < CELLS_MAX; i++)
		s->taken[i / 64] |= 1ull << (i % 64);
	s->tile->map.slab = s;
	partial_add(s);
	return 0;
}

static void *
take_cell(struct cow__slab *s)
{
	unsigned w = 0, i;

	while (s->taken[w] == UINT64_MAX)
		w++;
	i = w * 64 + (unsigned)__builtin_ctzll(~s->taken[w]);
	s->taken[w] |= 1ull << (i % 64);
	if (++s->used == s->cells)
		partial_remove(s);
	return (char *)cow__tile_start(s->tile) + i * class_bytes[s->class];
}

int
cow__small_new(size_t *bytes, bool zero, void **ret)
{
	unsigned class = class_of(*bytes);
	int r = cow__engine_enter();

	if (r < 0)
		return r;
	if (!partial[class])
		r = slab_new(class);
	if (r == 0) {
		*ret = take_cell(partial[class]);
		*bytes = class_bytes[class];
	}
	cow__engine_unlock();
	if (r == 0 && zero)
		memset(*ret, 0, *bytes);
	return r;
}

void
cow__small_free(void *data)
{
	struct cow__tile *t;
	struct cow__slab *s;
	unsigned i;

	cow__engine_lock();
	t = cow__tile_find((uintptr_t)data);
	cow__require(t && t->map.slab);
	s = t->map.slab;
	i = (unsigned)(((uintptr_t)data - cow__tile_start(t)) /
	               class_bytes[s->class]);
	cow__require(s->taken[i / 64] >> (i % 64) & 1);
	s->taken[i / 64] &= ~(1ull << (i % 64));
	if (s->used-- == s->cells)
		partial_add(s);
	if (s->used == 0) {
		partial_remove(s);
		t->map.slab = NULL;
		cow__extent_free(t);
		cow__pool_give(&slabs, s);
	}
	cow__engine_unlock();
}
