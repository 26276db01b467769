/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for the copy engine: plain loops, nothing else
 */
#include "tensor/dtype.h"
#include "tensor/strided.h"
#include "core/base.h"

struct value {
	double re, im;
	uint64_t u;
	bool integer;
};

static double
small(unsigned bits, int exp_bits, int man_bits, bool fn)
{
	int bias = (1 << (exp_bits - 1)) - 1;
	unsigned e = bits >> man_bits & ((1u << exp_bits) - 1);
	unsigned m = bits & ((1u << man_bits) - 1);
	double v, s = bits >> (exp_bits + man_bits) & 1 ? -1 : 1;
	int k;

	if (fn ? (bits & 0x7f) == 0x7f : e == (1u << exp_bits) - 1)
		return m ? __builtin_nan("") : s * __builtin_inf();
	v = e ? (double)(m | 1u << man_bits) : (double)m;
	k = (e ? (int)e : 1) - bias - man_bits;
	for (; k > 0; k--)
		v *= 2;
	for (; k < 0; k++)
		v /= 2;
	return s * v;
}

static unsigned
smaller(double v, int exp_bits, int man_bits, bool fn)
{
	unsigned sign = (unsigned)__builtin_signbit(v) << (exp_bits + man_bits);
	unsigned most = fn ? 0x7e : ((1u << exp_bits) - 1) << man_bits, lo = 0, hi = most;

	if (v != v)
		return sign | (fn ? 0x7f : most | 1u << (man_bits - 1));
	v = v < 0 ? -v : v;
	while (lo < hi) { /* the largest that is not above */
		unsigned mid = (lo + hi + 1) / 2;

		if (small(mid, exp_bits, man_bits, fn) <= v)
			lo = mid;
		else
			hi = mid - 1;
	}
	if (!fn && lo == most)
		return sign | most;
	if (lo < most || fn) {
		double a = small(lo, exp_bits, man_bits, fn);
		double b = !fn && lo + 1 == most ? 2 * a - small(lo - 1, exp_bits, man_bits, fn)
		           : fn && lo == most ? 480 : small(lo + 1, exp_bits, man_bits, fn);

		if (v - a > b - v || (v - a == b - v && (lo & 1)))
			lo++;
	}
	return sign | lo;
}

static double
get_float(enum cow_dtype d, const char *p)
{
	uint16_t h;
	float f;
	double g;

	switch (d) {
	case COW_FLOAT16: memcpy(&h, p, 2); return small(h, 5, 10, false);
	case COW_BFLOAT16: memcpy(&h, p, 2); return small(h, 8, 7, false);
	case COW_FLOAT32: memcpy(&f, p, 4); return f;
	case COW_FLOAT64: memcpy(&g, p, 8); return g;
	case COW_FLOAT8_E4M3FN: return small((unsigned char)*p, 4, 3, true);
	default: return small((unsigned char)*p, 5, 2, false);
	}
}

static void
put_float(enum cow_dtype d, char *p, double v)
{
	uint16_t h;
	float f = (float)v;

	switch (d) {
	case COW_FLOAT16: h = (uint16_t)smaller(v, 5, 10, false); memcpy(p, &h, 2); break;
	case COW_BFLOAT16: h = (uint16_t)smaller(v, 8, 7, false); memcpy(p, &h, 2); break;
	case COW_FLOAT32: memcpy(p, &f, 4); break;
	case COW_FLOAT64: memcpy(p, &v, 8); break;
	case COW_FLOAT8_E4M3FN: *p = (char)smaller(v, 4, 3, true); break;
	default: *p = (char)smaller(v, 5, 2, false);
	}
}

static enum cow_dtype
part(enum cow_dtype d)
{
	return d == COW_COMPLEX32 ? COW_FLOAT16 : d == COW_COMPLEX64 ? COW_FLOAT32 : COW_FLOAT64;
}

static struct value
get(enum cow_dtype d, const char *p)
{
	struct value v = { 0 };
	size_t n = cow_dtype_bytes(d);

	switch (cow__dtype_kind(d)) {
	case COW__KIND_COMPLEX:
		v.re = get_float(part(d), p);
		v.im = get_float(part(d), p + n / 2);
		break;
	case COW__KIND_FLOAT:
		v.re = get_float(d, p);
		break;
	default:
		v.integer = true;
		memcpy(&v.u, p, n);
		if (cow__dtype_kind(d) == COW__KIND_INT && n < 8)
			v.u = (uint64_t)((int64_t)(v.u << (64 - 8 * n)) >> (64 - 8 * n));
		v.re = cow__dtype_kind(d) == COW__KIND_INT ? (double)(int64_t)v.u : (double)v.u;
	}
	return v;
}

static void
put(enum cow_dtype d, char *p, struct value v)
{
	size_t n = cow_dtype_bytes(d);

	switch (cow__dtype_kind(d)) {
	case COW__KIND_COMPLEX:
		put_float(part(d), p, v.re);
		put_float(part(d), p + n / 2, v.im);
		break;
	case COW__KIND_FLOAT:
		put_float(d, p, v.re);
		break;
	case COW__KIND_BOOL:
		*p = v.integer ? v.u != 0 : v.re != 0 || v.im != 0;
		break;
	default:
		if (!v.integer)
			v.u = v.re >= -0x1p63 && v.re < 0x1p63 ? (uint64_t)(int64_t)v.re : (uint64_t)1 << 63;
		memcpy(p, &v.u, n);
	}
}

static void
one(const struct cow__strided *j, char *to, const char *from)
{
	size_t n = cow_dtype_bytes(j->to.dtype);
	struct value v;

	if (j->to.dtype == j->from.dtype && !j->conj && !j->neg) {
		memmove(to, from, n);
		return;
	}
	v = get(j->from.dtype, from);
	if (j->conj)
		v.im = -v.im;
	if (j->neg) {
		v.re = -v.re;
		v.im = -v.im;
		v.u = 0 - v.u;
	}
	put(j->to.dtype, to, v);
}

static void
walk(const struct cow__strided *j, int dim, char *to, const char *from)
{
	if (dim == j->dims) {
		one(j, to, from);
		return;
	}
	for (int64_t i = 0; i < j->sizes[dim]; i++)
		walk(j, dim + 1, to + i * j->to.strides[dim],
		     from + i * j->from.strides[dim]);
}

void
cow__strided_copy(const struct cow__strided *j)
{
	walk(j, 0, j->to.data, j->from.data);
}

void
cow__strided_simplify(struct cow__strided *j)
{
	int n = 0;

	for (int i = 0; i < j->dims; i++) {
		int k = n;

		if (j->sizes[i] == 1)
			continue;
		int64_t s = j->sizes[i], a = j->to.strides[i], b = j->from.strides[i];

		for (; k > 0 && j->to.strides[k - 1] < a; k--) {
			j->sizes[k] = j->sizes[k - 1];
			j->to.strides[k] = j->to.strides[k - 1];
			j->from.strides[k] = j->from.strides[k - 1];
		}
		j->sizes[k] = s;
		j->to.strides[k] = a;
		j->from.strides[k] = b;
		n++;
	}
	j->dims = n;
	for (int i = j->dims - 1; i > 0; i--) {
		if (j->to.strides[i - 1] != j->to.strides[i] * j->sizes[i] ||
		    j->from.strides[i - 1] != j->from.strides[i] * j->sizes[i])
			continue;
		j->sizes[i - 1] *= j->sizes[i];
		j->to.strides[i - 1] = j->to.strides[i];
		j->from.strides[i - 1] = j->from.strides[i];
		for (int k = i; k + 1 < j->dims; k++) {
			j->sizes[k] = j->sizes[k + 1];
			j->to.strides[k] = j->to.strides[k + 1];
			j->from.strides[k] = j->from.strides[k + 1];
		}
		j->dims--;
	}
}

static int threads = 1;

COW_EXPORT int
cow_threads_set(int n)
{
	threads = n ? n : 1;
	return 0;
}

COW_EXPORT int
cow_threads_get(void)
{
	return threads;
}
