/* SPDX-License-Identifier: MIT */
/*
 * Copies in bulk: see the header.
 */
#include "core/memory/bulk.h"
#include "core/base/base.h"
#include "core/base/stream.h"
#include "core/memory/apart.h"
#include "core/memory/workers.h"
#include "core/policy/constants.h"

struct bulk {
	char *to;
	const char *from;
	size_t bytes;
	bool commits;
};

/* The kernel has just cleared committed memory, so it is in the caches. All else is not, if
 * it is large, and will not be read from there. */
static void
copy_range(const struct bulk *b, uintptr_t at, size_t bytes)
{
	const char *from = b->from + (at - (uintptr_t)b->to);

	if (b->commits || b->bytes < COW__BULK_STREAM_LEAST) {
		memcpy((void *)at, from, bytes);
	} else {
		cow__stream_copy((char *)at, from, bytes);
		cow__stream_end();
	}
}

/* Strides [first, last), counted from the boundary at or before the start. */
static void
copy_strides(void *arg, int64_t first, int64_t last)
{
	const struct bulk *b = arg;
	uintptr_t start = (uintptr_t)b->to, end = start + b->bytes;
	uintptr_t base = cow__round_down(start, COW__BULK_STRIDE);

	for (int64_t i = first; i < last; i++) {
		uintptr_t at = cow__max(start, base + (uintptr_t)i * COW__BULK_STRIDE);
		uintptr_t to = cow__min(end, base + (uintptr_t)(i + 1) * COW__BULK_STRIDE);

		if (b->commits)
			cow__commit_at(at, to);
		if (b->from)
			copy_range(b, at, to - at);
	}
}

static int64_t
stride_count(const struct bulk *b)
{
	uintptr_t start = (uintptr_t)b->to, base = cow__round_down(start, COW__BULK_STRIDE);

	return (int64_t)((start + b->bytes - base + COW__BULK_STRIDE - 1) / COW__BULK_STRIDE);
}

void
cow__bulk_copy(void *to, const void *from, size_t bytes, bool fresh)
{
	struct bulk b = { to, from, bytes, fresh };

	if (bytes)
		cow__workers_run(stride_count(&b), COW__BULK_GRAIN, copy_strides, &b);
}

void
cow__bulk_copy_here(void *to, const void *from, size_t bytes, bool fresh)
{
	struct bulk b = { to, from, bytes, fresh };

	if (bytes)
		copy_strides(&b, 0, stride_count(&b));
}

void
cow__bulk_commit(uintptr_t at, size_t bytes)
{
	struct bulk b = { (char *)at, NULL, bytes, true };

	if (bytes)
		cow__workers_run(stride_count(&b), COW__BULK_GRAIN, copy_strides, &b);
}
