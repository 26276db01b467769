/* SPDX-License-Identifier: MIT */
/*
 * Growing arrays of metadata: see the header.
 */
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "memfd/map.h"

#define LEAST 64
#define POOLS 10 /* 64 bytes .. 32 KiB */

static struct cow__pool pools[POOLS] = {
	{ .object_bytes = 64 },    { .object_bytes = 128 },
	{ .object_bytes = 256 },   { .object_bytes = 512 },
	{ .object_bytes = 1024 },  { .object_bytes = 2048 },
	{ .object_bytes = 4096 },  { .object_bytes = 8192 },
	{ .object_bytes = 16384 }, { .object_bytes = 32768 },
};

static unsigned
order(size_t bytes)
{
	unsigned o = 0;

	while ((size_t)LEAST << o < bytes)
		o++;
	return o;
}

int
cow__array_reserve(void **array, uint32_t *cap, size_t element, uint32_t count)
{
	size_t bytes;
	unsigned o;
	void *fresh;

	if (count <= *cap)
		return 0;
	o = order(count * element);
	bytes = (size_t)LEAST << o;
	if (o < POOLS) {
		fresh = cow__pool_take(&pools[o]);
		if (!fresh)
			return -ENOMEM;
	} else {
		int r = cow__map_meta(bytes, &fresh);

		if (r < 0)
			return r;
	}
	if (*cap) {
		memcpy(fresh, *array, *cap * element);
		cow__array_free(*array, *cap, element);
	}
	*array = fresh;
	*cap = (uint32_t)(bytes / element);
	return 0;
}

void
cow__array_free(void *array, uint32_t cap, size_t element)
{
	size_t want = cap * element;
	unsigned o;

	if (!cap)
		return;
	o = order(want);
	if (o < POOLS)
		cow__pool_give(&pools[o], array);
	else
		(void)cow__map_release((uintptr_t)array, (size_t)LEAST << o);
}
