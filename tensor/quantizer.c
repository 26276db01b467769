/* SPDX-License-Identifier: MIT */
/*
 * Quantizers: made and freed. See the header.
 */
#include "tensor/quantizer.h"
#include "core/base/base.h"
#include "core/base/pool.h"

static struct cow__pool quantizers = {
	.object_bytes = sizeof(struct cow__quantizer)
};

int
cow__quantizer_new(uint32_t scheme, int64_t channels, struct cow__quantizer **ret)
{
	struct cow__quantizer *q = cow__pool_take(&quantizers);
	size_t one = sizeof(double) + sizeof(int64_t), bytes;
	void *data;
	int r;

	if (!q)
		return -ENOMEM;
	*q = (struct cow__quantizer){
		.refs = 1,
		.scheme = scheme,
		.channels = channels,
		.scales = &q->one.scale,
		.zero_points = &q->one.zero_point,
	};
	if (channels > 1) {
		/* A number of bytes that overflows is refused as too large. */
		if (__builtin_mul_overflow((size_t)channels, one, &bytes))
			bytes = SIZE_MAX;
		r = cow_storage_new(bytes, NULL, &q->table);
		if (r == 0)
			r = cow_storage_data_mut(q->table, &data);
		if (r < 0) {
			cow__quantizer_unref(q);
			return r;
		}
		q->scales = data;
		q->zero_points = (int64_t *)(q->scales + channels);
	}
	*ret = q;
	return 0;
}

void
cow__quantizer_unref(struct cow__quantizer *q)
{
	if (__atomic_fetch_sub(&q->refs, 1, __ATOMIC_ACQ_REL) > 1)
		return;
	(void)cow_storage_unref(q->table);
	cow__pool_give(&quantizers, q);
}
