/* SPDX-License-Identifier: MIT */
/*
 * What views and copies mean, without a thought for speed
 *
 * A storage is an array of bytes, an element is a place in it. Nothing here is of the
 * library but the names of types: conversions are written down a second time, from the
 * header's text.
 */
#ifndef COWSHED_TESTS_NAIVE_H
#define COWSHED_TESTS_NAIVE_H

#include <cowshed-tensor.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAIVE_DIMS = 8 };

struct naive_view {
	enum cow_dtype dtype;
	int dims;
	int64_t sizes[NAIVE_DIMS], strides[NAIVE_DIMS], offset; /* elements */
	bool conj, neg;
};

#define naive_must(condition)                                                  \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__,       \
			        __LINE__, #condition);                         \
			abort();                                               \
		}                                                              \
	} while (0)

static inline int64_t naive_count(int dims, const int64_t *sizes)
{
	int64_t n = 1;

	for (int i = 0; i < dims; i++)
		n *= sizes[i];
	return n;
}

static inline int64_t naive_numel(const struct naive_view *v)
{
	return naive_count(v->dims, v->sizes);
}

/* The index of element `n`, in the order of the dimensions. */
static inline void naive_index(int dims, const int64_t *sizes, int64_t n, int64_t *ret)
{
	for (int d = dims; d-- > 0; n /= sizes[d])
		ret[d] = n % sizes[d];
}

/* Where it is, in elements. */
static inline int64_t naive_place(const struct naive_view *v, const int64_t *index)
{
	int64_t at = v->offset;

	for (int d = 0; d < v->dims; d++)
		at += index[d] * v->strides[d];
	return at;
}

static inline int64_t naive_nth(const struct naive_view *v, int64_t n)
{
	int64_t index[NAIVE_DIMS];

	naive_index(v->dims, v->sizes, n, index);
	return naive_place(v, index);
}

/* ---- Elements ------------------------------------------------------------------- */

/* A float stays one: as a double a NaN would lose that it signals. */
struct naive_part {
	bool narrow;
	float f;
	double d; /* in any case */
};

/* An element on its way. */
struct naive_value {
	bool integer;
	uint64_t bits; /* of an integer, sign-extended */
	bool sign;     /* ... which is one of a signed type */
	struct naive_part re, im;
};

static inline void naive_flip(unsigned char *part, size_t bytes)
{
	part[bytes - 1] ^= 0x80;
}

/* conj and neg, on the element's bytes. */
static inline void naive_bits(enum cow_dtype t, bool conj, bool neg, unsigned char *e)
{
	size_t bytes = cow_dtype_bytes(t);
	uint64_t x = 0;

	if (cow_dtype_is_complex(t)) {
		if (neg)
			naive_flip(e, bytes / 2);
		if (neg != conj)
			naive_flip(e + bytes / 2, bytes / 2);
	} else if (neg && cow_dtype_is_floating(t)) {
		naive_flip(e, bytes);
	} else if (neg) {
		memcpy(&x, e, bytes);
		x = 0 - x;
		memcpy(e, &x, bytes);
	}
}

static inline struct naive_part naive_float(enum cow_dtype t, const unsigned char *e)
{
	struct naive_part p = { .narrow = t == COW_FLOAT32 || t == COW_COMPLEX64 };

	if (p.narrow) {
		memcpy(&p.f, e, sizeof(p.f));
		p.d = (double)p.f;
	} else {
		memcpy(&p.d, e, sizeof(p.d));
	}
	return p;
}

static inline struct naive_value naive_load(enum cow_dtype t, const unsigned char *e)
{
	struct naive_value v = { .integer = false };
	size_t bytes = cow_dtype_bytes(t);

	if (cow_dtype_is_complex(t)) {
		v.re = naive_float(t, e);
		v.im = naive_float(t, e + bytes / 2);
		return v;
	}
	if (cow_dtype_is_floating(t)) {
		v.re = naive_float(t, e);
		return v;
	}
	v.integer = true;
	v.sign = t >= COW_INT8 && t <= COW_INT64;
	memcpy(&v.bits, e, bytes);
	if (t == COW_BOOL)
		v.bits = v.bits != 0;
	if (v.sign && bytes < 8 && v.bits >> (8 * bytes - 1))
		v.bits |= ~(uint64_t)0 << (8 * bytes);
	return v;
}

/* Towards zero; what does not fit, and NaN: INT64_MIN. */
static inline uint64_t naive_int64(double d)
{
	d = trunc(d);
	return d >= -0x1p63 && d < 0x1p63 ? (uint64_t)(int64_t)d : (uint64_t)1 << 63;
}

static inline uint64_t naive_integer(enum cow_dtype t, double d)
{
	if (t == COW_UINT64 && d >= 0x1p63)
		return naive_int64(d - 0x1p63) + ((uint64_t)1 << 63);
	return naive_int64(d);
}

static inline void naive_store_float(enum cow_dtype t, const struct naive_value *v,
                                     struct naive_part p, unsigned char *e)
{
	bool narrow = t == COW_FLOAT32 || t == COW_COMPLEX64;

	if (v->integer) {
		p.f = v->sign ? (float)(int64_t)v->bits : (float)v->bits;
		p.d = v->sign ? (double)(int64_t)v->bits : (double)v->bits;
	} else if (!p.narrow) {
		p.f = (float)p.d;
	}
	if (narrow)
		memcpy(e, &p.f, sizeof(p.f));
	else
		memcpy(e, &p.d, sizeof(p.d));
}

static inline void naive_store(enum cow_dtype t, struct naive_value v, unsigned char *e)
{
	size_t bytes = cow_dtype_bytes(t);
	uint64_t x;

	if (cow_dtype_is_complex(t)) {
		naive_store_float(t, &v, v.re, e);
		if (v.integer)
			v = (struct naive_value){ .integer = false };
		naive_store_float(t, &v, v.im, e + bytes / 2);
	} else if (cow_dtype_is_floating(t)) {
		naive_store_float(t, &v, v.re, e);
	} else {
		x = v.integer ? v.bits : naive_integer(t, v.re.d);
		if (t == COW_BOOL)
			x = v.integer ? v.bits != 0 : v.re.d != 0 || v.im.d != 0;
		memcpy(e, &x, bytes);
	}
}

/* `e` of type `from` becomes one of type `to`, with bits of both sides. */
static inline void naive_convert(const struct naive_view *to, const struct naive_view *from,
                                 unsigned char *e)
{
	naive_bits(from->dtype, from->conj, from->neg, e);
	if (to->dtype != from->dtype)
		naive_store(to->dtype, naive_load(from->dtype, e), e);
	naive_bits(to->dtype, to->conj, to->neg, e);
}

#endif
