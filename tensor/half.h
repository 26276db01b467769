/* SPDX-License-Identifier: MIT */
/*
 * Floats of 8 and 16 bits, one at a time, in integers
 *
 * All but bfloat16 follow one rule: scale the float so that the least bit of the result is
 * the least bit of an integer, then round by one addition. These functions have no
 * branches, so compilers make vectors of loops over them. NaN keeps its sign and as much
 * of its payload as fits, and becomes quiet, as with the processors' own instructions.
 *
 * Wider types are converted to float first, rounded *to odd*: the lost bits are cut off,
 * and the last bit is set if any of them was 1. Rounding that to nearest gives the same
 * as rounding once. Rounding to nearest twice would not.
 */
#ifndef COW_TENSOR_HALF_H
#define COW_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

/* The kernels of cuda/ use the same rules. */
#if defined(__CUDACC__)
#define COW__RULE static __device__ __forceinline__
#else
#define COW__RULE static inline
#endif

COW__RULE uint32_t
cow__float_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

COW__RULE float
cow__bits_float(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* c ? a : b without a branch. */
COW__RULE uint32_t
cow__pick(int c, uint32_t a, uint32_t b)
{
	uint32_t mask = -(uint32_t)!!c;

	return (a & mask) | (b & ~mask);
}

/* ---- bfloat16 ---- */

COW__RULE float
cow__from_bfloat16(uint16_t b)
{
	return cow__bits_float((uint32_t)b << 16);
}

COW__RULE uint16_t
cow__to_bfloat16(float f)
{
	uint32_t u = cow__float_bits(f);
	uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;

	return (uint16_t)cow__pick((u & 0x7fffffff) > 0x7f800000,
	                           u >> 16 | 0x40, rounded);
}

/* ---- float16, float8_e5m2: exponents of 5 bits, with infinity ---- */

COW__RULE float
cow__from_float16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t rest = (uint32_t)(h & 0x7fff) << 13;
	/* Normal numbers get another bias; infinity and NaN get it twice. A subnormal is
	 * the exact difference of two normal ones. */
	uint32_t normal = rest + ((127 - 15) << 23);
	uint32_t special = rest + (2 * (127 - 15) << 23);
	uint32_t tiny = cow__float_bits(
	        cow__bits_float(rest + ((127 - 14) << 23)) -
	        cow__bits_float((127 - 14) << 23));

	normal = cow__pick(rest >= 31u << 23, special, normal);
	normal = cow__pick(rest < 1u << 23, tiny, normal);
	normal |= (uint32_t)(rest > 31u << 23) << 22;
	return cow__bits_float(sign | normal);
}

/* To a type with 5 bits of exponent and `bits` of fraction, without the sign. */
COW__RULE uint32_t
cow__to_narrow5(uint32_t a, int bits)
{
	int shift = 23 - bits;
	uint32_t inf = 31u << bits;
	uint32_t normal = (a + (1u << (shift - 1)) - 1 + (a >> shift & 1) -
	                   ((127 - 15) << 23)) >> shift;
	/* The last bit of `magic` weighs as much as the least subnormal. */
	uint32_t magic = (uint32_t)(127 - 15 + shift + 1) << 23;
	uint32_t tiny = cow__float_bits(cow__bits_float(a) +
	                                cow__bits_float(magic)) - magic;
	uint32_t r;

	r = cow__pick(a < (127u - 14) << 23, tiny, normal);
	r = cow__pick(a >= (127u + 16) << 23 || r > inf, inf, r);
	return cow__pick(a > 0x7f800000,
	                 inf | 1u << (bits - 1) |
	                         (a >> shift & ((1u << bits) - 1)), r);
}

COW__RULE uint16_t
cow__to_float16(float f)
{
	uint32_t u = cow__float_bits(f);

	return (uint16_t)((u >> 16 & 0x8000) | cow__to_narrow5(u & 0x7fffffff, 10));
}

COW__RULE float
cow__from_float8_e5m2(uint8_t b)
{
	return cow__from_float16((uint16_t)(b << 8));
}

COW__RULE uint8_t
cow__to_float8_e5m2(float f)
{
	uint32_t u = cow__float_bits(f);

	return (uint8_t)((u >> 24 & 0x80) | cow__to_narrow5(u & 0x7fffffff, 2));
}

/* ---- float8_e4m3fn: no infinity, one NaN of either sign, up to 448 ---- */

COW__RULE float
cow__from_float8_e4m3fn(uint8_t b)
{
	uint32_t sign = (uint32_t)(b & 0x80) << 24;
	uint32_t rest = (uint32_t)(b & 0x7f) << 20;
	uint32_t normal = rest + ((127 - 7) << 23);
	uint32_t tiny = cow__float_bits(
	        cow__bits_float(rest + ((127 - 6) << 23)) -
	        cow__bits_float((127 - 6) << 23));

	normal = cow__pick(rest < 1u << 23, tiny, normal);
	normal = cow__pick((b & 0x7f) == 0x7f, 0x7fc00000, normal);
	return cow__bits_float(sign | normal);
}

COW__RULE uint8_t
cow__to_float8_e4m3fn(float f)
{
	uint32_t u = cow__float_bits(f), a = u & 0x7fffffff;
	uint32_t normal = (a + 0x7ffff + (a >> 20 & 1) - ((127 - 7) << 23)) >> 20;
	uint32_t magic = (uint32_t)(127 - 7 + 20 + 1) << 23;
	uint32_t tiny = cow__float_bits(cow__bits_float(a) +
	                                cow__bits_float(magic)) - magic;
	uint32_t r = cow__pick(a < (127u - 6) << 23, tiny, normal);

	r = cow__pick(a >= (127u + 9) << 23 || r > 0x7e, 0x7e, r);
	r = cow__pick(a > 0x7f800000, 0x7f, r);
	return (uint8_t)((u >> 24 & 0x80) | r);
}

/* ---- Rounding to odd ---- */

COW__RULE float
cow__float_odd(double d)
{
	uint64_t u, a;
	uint32_t sign, r;

	memcpy(&u, &d, 8);
	a = u & INT64_MAX;
	sign = (uint32_t)(u >> 32) & 0x80000000;
	if (a > (uint64_t)0x7ff << 52)
		r = 0x7fc00000 | (uint32_t)(a >> 29 & 0x3fffff);
	else if (a == (uint64_t)0x7ff << 52)
		r = 0x7f800000;
	else if (a >= (uint64_t)(1023 + 128) << 52)
		r = 0x7f7fffff; /* not infinity yet: an odd fraction */
	else if (a < (uint64_t)(1023 - 150) << 52)
		r = a != 0;
	else if (a < (uint64_t)(1023 - 126) << 52) { /* float's subnormals */
		int shift = 1023 - 126 + 29 - (int)(a >> 52);
		uint64_t one = 1, m = (a & ((one << 52) - 1)) | one << 52;

		r = (uint32_t)(m >> shift) | ((m & ((one << shift) - 1)) != 0);
	} else
		r = (uint32_t)((a - ((uint64_t)(1023 - 127) << 52)) >> 29) |
		    ((a & 0x1fffffff) != 0);
	return cow__bits_float(sign | r);
}

COW__RULE int
cow__leading_zeros(uint64_t u)
{
#if defined(__CUDA_ARCH__)
	return __clzll((long long)u);
#else
	return u ? __builtin_clzll(u) : 64;
#endif
}

COW__RULE float
cow__unsigned_odd(uint64_t u)
{
	int shift = 64 - 24 - cow__leading_zeros(u);

	if (shift > 0) {
		uint64_t lost = u & (((uint64_t)1 << shift) - 1);

		u = (u >> shift | (lost != 0)) << shift;
	}
	return (float)u;
}

COW__RULE float
cow__signed_odd(int64_t i)
{
	return i < 0 ? -cow__unsigned_odd(-(uint64_t)i) : cow__unsigned_odd((uint64_t)i);
}

#endif
