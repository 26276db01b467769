/* SPDX-License-Identifier: MIT */
/*
 * How one element is converted: the rules of cowshed-tensor.h
 *
 * An element is loaded as one of six wide kinds, and stored from it:
 *
 *      I int64, U uint64, F float, D double, CF two floats, CD two doubles
 *
 * So each rule is here once: STORE_type(kind) converts a variable `v` of that kind. The
 * file is compiled as C for the host and as CUDA C for the kernels of cuda/, so that both
 * give the same bits.
 */
#ifndef COW_TENSOR_RULES_H
#define COW_TENSOR_RULES_H

#include "tensor/half.h"

struct cf {
	float re, im;
};
struct cd {
	double re, im;
};
struct c16 {
	uint16_t re, im;
};

#define COW__COMPLEX(name, part)                                               \
	COW__RULE struct name cow__##name(part re, part im)                    \
	{                                                                      \
		struct name c = { re, im };                                    \
                                                                               \
		return c;                                                      \
	}
COW__COMPLEX(cf, float)
COW__COMPLEX(cd, double)
COW__COMPLEX(c16, uint16_t)

/* A kernel's compiler may have instructions for these. */
#ifndef COW__TO_FLOAT16
#define COW__TO_FLOAT16 cow__to_float16
#define COW__FROM_FLOAT16 cow__from_float16
#endif

/* ---- The rules ---- */

COW__RULE int64_t
int_D(double d)
{
	return d >= -0x1p63 && d < 0x1p63 ? (int64_t)d : INT64_MIN;
}

COW__RULE int64_t
int_F(float f)
{
	return f >= -0x1p63f && f < 0x1p63f ? (int64_t)f : INT64_MIN;
}

COW__RULE uint64_t
uint_D(double d)
{
	if (d < 0x1p63 || d != d)
		return (uint64_t)int_D(d);
	return (uint64_t)int_D(d - 0x1p63) ^ (uint64_t)1 << 63;
}

/* NaN keeps its payload and becomes quiet. The host's processors do that by themselves; a
 * kernel has code for it. */
COW__RULE double
double_F(float f)
{
#if defined(__CUDA_ARCH__)
	if (f != f) {
		uint64_t u = cow__float_bits(f);

		return __longlong_as_double((long long)(
		        u >> 31 << 63 | (uint64_t)0x7ff8 << 48 |
		        (u & 0x7fffff) << 29));
	}
#endif
	return f;
}

COW__RULE float
float_D(double d)
{
#if defined(__CUDA_ARCH__)
	if (d != d) {
		uint64_t u = (uint64_t)__double_as_longlong(d);

		return cow__bits_float((uint32_t)(u >> 63 << 31) | 0x7fc00000 |
		                       (uint32_t)(u >> 29 & 0x3fffff));
	}
#endif
	return (float)d;
}

#define int_I(v) ((int64_t)(v))
#define int_U(v) ((int64_t)(v))
#define uint_I(v) ((uint64_t)(v))
#define uint_U(v) ((uint64_t)(v))
#define uint_F(v) uint_D(v) /* integers have no NaN, so no payload is lost */

/* For the narrow floats. */
#define odd_I(v) cow__signed_odd(v)
#define odd_U(v) cow__unsigned_odd(v)
#define odd_F(v) (v)
#define odd_D(v) cow__float_odd(v)

/* A kind as a real number: of a complex one the real part. */
#define REAL_I I, v
#define REAL_U U, v
#define REAL_F F, v
#define REAL_D D, v
#define REAL_CF F, v.re
#define REAL_CD D, v.re
#define IMAG_I I, 0
#define IMAG_U I, 0
#define IMAG_F I, 0
#define IMAG_D I, 0
#define IMAG_CF F, v.im
#define IMAG_CD D, v.im
#define TRUE_I (v != 0)
#define TRUE_U (v != 0)
#define TRUE_F (v != 0)
#define TRUE_D (v != 0)
#define TRUE_CF (v.re != 0 || v.im != 0)
#define TRUE_CD (v.re != 0 || v.im != 0)

#define CALL(macro, ...) macro(__VA_ARGS__)
#define AS_INT(kind, value) int_##kind(value)
#define AS_UINT(kind, value) uint_##kind(value)
#define AS_ODD(kind, value) odd_##kind(value)
#define float_I(v) ((float)(v))
#define float_U(v) ((float)(v))
#define float_F(v) (v)
#define double_I(v) ((double)(v))
#define double_U(v) ((double)(v))
#define double_D(v) (v)
#define AS_FLOAT(kind, value) float_##kind(value)
#define AS_DOUBLE(kind, value) double_##kind(value)
#define AS_HALF(kind, value) COW__TO_FLOAT16(odd_##kind(value))
#define AS_BF(kind, value) cow__to_bfloat16(odd_##kind(value))
#define AS_E4(kind, value) cow__to_float8_e4m3fn(odd_##kind(value))
#define AS_E5(kind, value) cow__to_float8_e5m2(odd_##kind(value))

#define STORE_BOOL(k) TRUE_##k
#define STORE_INT8(k) (int8_t)CALL(AS_INT, REAL_##k)
#define STORE_INT16(k) (int16_t)CALL(AS_INT, REAL_##k)
#define STORE_INT32(k) (int32_t)CALL(AS_INT, REAL_##k)
#define STORE_INT64(k) CALL(AS_INT, REAL_##k)
#define STORE_UINT8(k) (uint8_t)CALL(AS_INT, REAL_##k)
#define STORE_UINT16(k) (uint16_t)CALL(AS_INT, REAL_##k)
#define STORE_UINT32(k) (uint32_t)CALL(AS_INT, REAL_##k)
#define STORE_UINT64(k) CALL(AS_UINT, REAL_##k)
#define STORE_FLOAT16(k) CALL(AS_HALF, REAL_##k)
#define STORE_BFLOAT16(k) CALL(AS_BF, REAL_##k)
#define STORE_FLOAT32(k) CALL(AS_FLOAT, REAL_##k)
#define STORE_FLOAT64(k) CALL(AS_DOUBLE, REAL_##k)
#define STORE_COMPLEX32(k)                                                     \
	cow__c16(CALL(AS_HALF, REAL_##k), CALL(AS_HALF, IMAG_##k))
#define STORE_COMPLEX64(k)                                                     \
	cow__cf(CALL(AS_FLOAT, REAL_##k), CALL(AS_FLOAT, IMAG_##k))
#define STORE_COMPLEX128(k)                                                    \
	cow__cd(CALL(AS_DOUBLE, REAL_##k), CALL(AS_DOUBLE, IMAG_##k))
#define STORE_FLOAT8_E4M3FN(k) CALL(AS_E4, REAL_##k)
#define STORE_FLOAT8_E5M2(k) CALL(AS_E5, REAL_##k)

/* ---- Loading: wide kinds ---- */

#define WIDE_I int64_t
#define WIDE_U uint64_t
#define WIDE_F float
#define WIDE_D double
#define WIDE_CF struct cf
#define WIDE_CD struct cd

#define SAME(x) (x)
#define TRUTH(x) ((x) != 0)
#define PAIR16(x) { COW__FROM_FLOAT16((x).re), COW__FROM_FLOAT16((x).im) }

#endif
