/* SPDX-License-Identifier: MIT */
/*
 * Any job that the engine may be given: as a loop over all indexes does it
 *
 * The input is read as small numbers: type sizes, dimensions, an order of them and
 * holes for either side, zero and negative strides, an offset.
 */
#include "tensor/strided.h"

#include <stdlib.h>
#include <string.h>

#define BYTES 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned char from[BYTES], to[BYTES], expected[BYTES];

static unsigned take(const uint8_t **p, const uint8_t *end)
{
	return *p < end ? *(*p)++ : 0;
}

/* -1: does not fit. */
static int side(struct cow__side *s, const struct cow__strided *j, bool source,
                unsigned char *memory, const uint8_t **p, const uint8_t *end)
{
	int64_t bytes = (int64_t)cow_dtype_bytes(s->dtype), step = bytes, low = 0;
	int64_t high = bytes;
	unsigned rotate = take(p, end);

	for (int i = 0; i < j->dims; i++) {
		int d = (int)((unsigned)i + rotate) % j->dims;
		unsigned how = take(p, end);

		if (rotate & 0x80)
			d = j->dims - 1 - d;
		if (how % 8 == 7)
			step += bytes * (how >> 5);
		s->strides[d] = step;
		if (source && how % 8 == 6) {
			s->strides[d] = 0;
			continue;
		}
		step *= j->sizes[d] ? j->sizes[d] : 1;
		if (how % 8 == 5)
			s->strides[d] = -s->strides[d];
		if (j->sizes[d] && s->strides[d] < 0)
			low += s->strides[d] * (j->sizes[d] - 1);
		else if (j->sizes[d])
			high += s->strides[d] * (j->sizes[d] - 1);
		if (step > BYTES)
			return -1;
	}
	if (high - low > BYTES - 64)
		return -1;
	s->data = (char *)memory + take(p, end) % 64 - low;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum cow_dtype types[] = { COW_UINT8, COW_INT16, COW_FLOAT32,
		                                COW_INT64, COW_COMPLEX128 };
	const uint8_t *p = data, *end = data + size;
	struct cow__strided j = { .dims = 0 };
	int64_t n = 1, bytes;

	for (size_t i = 0; i < BYTES; i++)
		from[i] = (unsigned char)(i * 167 ^ i >> 8);
	memset(to, 0x5a, BYTES);
	memset(expected, 0x5a, BYTES);
	j.to.dtype = j.from.dtype = types[take(&p, end) % 5];
	bytes = (int64_t)cow_dtype_bytes(j.to.dtype);
	j.dims = (int)(take(&p, end) % 7);
	for (int d = 0; d < j.dims; d++)
		n *= j.sizes[d] = take(&p, end);
	if (n > BYTES || side(&j.to, &j, false, to, &p, end) < 0 ||
	    side(&j.from, &j, true, from, &p, end) < 0)
		return 0;
	cow__strided_copy(&j);
	for (int64_t i = 0; i < n; i++) {
		int64_t rest = i, t = 0, f = 0;

		for (int d = j.dims; d-- > 0; rest /= j.sizes[d]) {
			t += rest % j.sizes[d] * j.to.strides[d];
			f += rest % j.sizes[d] * j.from.strides[d];
		}
		memcpy(expected + (j.to.data - (char *)to) + t, j.from.data + f,
		       (size_t)bytes);
	}
	if (memcmp(to, expected, BYTES))
		abort();
	return 0;
}
