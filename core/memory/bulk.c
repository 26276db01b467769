/* SPDX-License-Identifier: MIT */
/*
 * Copies in bulk: see the header.
 */
#include "core/memory/bulk.h"
#include "core/base/base.h"
#include "core/memory/commit.h"
#include "core/memory/workers.h"

#define STRIDE (4 * COW__HUGE) /* cleared by the kernel, then copied to */
#define GRAIN 1                /* strides that are worth another thread */

struct bulk {
	char *to;
	const char *from;
	size_t bytes;
	bool commits;
};

/* Strides [first, last), counted from the boundary at or before the start. */
static void
part(void *arg, int64_t first, int64_t last)
{
	const struct bulk *b = arg;
	uintptr_t start = (uintptr_t)b->to, end = start + b->bytes;
	uintptr_t base = cow__round_down(start, STRIDE);

	for (int64_t i = first; i < last; i++) {
		uintptr_t at = cow__max(start, base + (uintptr_t)i * STRIDE);
		uintptr_t to = cow__min(end, base + (uintptr_t)(i + 1) * STRIDE);

		if (b->commits)
			cow__commit_at(at, to);
		if (b->from)
			memcpy((void *)at, b->from + (at - start), to - at);
	}
}

static int64_t
strides(const struct bulk *b)
{
	uintptr_t start = (uintptr_t)b->to, base = cow__round_down(start, STRIDE);

	return (int64_t)((start + b->bytes - base + STRIDE - 1) / STRIDE);
}

void
cow__bulk_copy(void *to, const void *from, size_t bytes, bool fresh)
{
	struct bulk b = { to, from, bytes, fresh };

	if (bytes)
		cow__workers_run(strides(&b), GRAIN, part, &b);
}

void
cow__bulk_copy_here(void *to, const void *from, size_t bytes, bool fresh)
{
	struct bulk b = { to, from, bytes, fresh };

	if (bytes)
		part(&b, 0, strides(&b));
}

void
cow__bulk_commit(uintptr_t at, size_t bytes)
{
	struct bulk b = { (char *)at, NULL, bytes, true };

	if (bytes)
		cow__workers_run(strides(&b), GRAIN, part, &b);
}
