/* SPDX-License-Identifier: MIT */
/*
 * A strided copy after planning: what the kernels work from
 *
 * The last dimension is the destination's densest. Sizes and strides are those of
 * *units*: elements, or whole short rows of them that are dense on both sides, which
 * are moved like one large element.
 */
#ifndef COW_TENSOR_PLAN_H
#define COW_TENSOR_PLAN_H

#include "tensor/convert.h"

struct cow__plan {
	int dims;
	int64_t sizes[COW_DIMS_MAX];
	int64_t to_strides[COW_DIMS_MAX], from_strides[COW_DIMS_MAX]; /* bytes */
	char *to;
	const char *from;
	int64_t bytes;    /* of a unit of the source */
	int64_t to_bytes; /* ... of the destination */
	bool converts;
	struct cow__conversion conversion;
	bool stream; /* past the caches */
};

/* Places in the two sides, and how to get from one to the next: the dimensions but
 * those of the kernel, counted up like an odometer. */
struct cow__walk {
	int dims;
	const int64_t *sizes, *to_strides, *from_strides;
	int64_t at[COW_DIMS_MAX];
	int64_t to, from;
};

static inline void
cow__walk_start(struct cow__walk *w, int64_t index)
{
	w->to = w->from = 0;
	for (int d = w->dims; d-- > 0; index /= w->sizes[d]) {
		w->at[d] = index % w->sizes[d];
		w->to += w->at[d] * w->to_strides[d];
		w->from += w->at[d] * w->from_strides[d];
	}
}

static inline void
cow__walk_next(struct cow__walk *w)
{
	for (int d = w->dims; d-- > 0;) {
		w->to += w->to_strides[d];
		w->from += w->from_strides[d];
		if (++w->at[d] < w->sizes[d])
			return;
		w->to -= w->at[d] * w->to_strides[d];
		w->from -= w->at[d] * w->from_strides[d];
		w->at[d] = 0;
	}
}

/* `n` units, dense on both sides: copied or converted, past the caches if planned. */
void cow__plan_row(const struct cow__plan *plan, char *to, const char *from,
                   int64_t n);

/* A plan in which the dense dimensions differ, or in which none is. Takes `stream` back
 * where it does not pay. */
void cow__plan_permute(struct cow__plan *plan);

/* How many units of work a thread should get at least, each of so many bytes. */
int64_t cow__plan_grain(int64_t bytes);

#endif
