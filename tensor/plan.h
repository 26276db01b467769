/* SPDX-License-Identifier: MIT */
/*
 * A strided copy after planning, as the kernels get it
 *
 * The last dimension is the densest of the destination. Sizes and strides count *units*. A
 * unit is an element, or a whole short row of elements that is dense on both sides; such
 * a row is moved like one large element.
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
	bool stream; /* stores go past the caches */
};

/* Walks over all dimensions but those of the kernel, like an odometer, and keeps the place
 * in both sides. */
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

/* Copies or converts `n` units that are dense on both sides; past the caches if planned. */
void cow__plan_row(const struct cow__plan *plan, char *to, const char *from,
                   int64_t n);

/* Runs a plan in which the two sides have different dense dimensions, or none. Clears
 * `stream` where it does not pay. */
void cow__plan_permute(struct cow__plan *plan);

/* The least number of units of work, of `bytes` each, that a thread should get. */
int64_t cow__plan_grain(int64_t bytes);

#endif
