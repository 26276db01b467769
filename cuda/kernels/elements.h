/* SPDX-License-Identifier: MIT */
/*
 * Conversion of elements of every type to every type, four at a time
 *
 * The rules are the host's (tensor/rules.h), through six wide kinds. There is a kernel for
 * each kind. It chooses by the source's type, converts four elements to the kind, and
 * chooses by the destination's type. All threads of a launch choose alike, and once for
 * four elements, so a choice costs little. There are 6 x 18 bodies, not 18 x 18.
 *
 * A *source* has get(raw elements), a *sink* put(raw elements).
 */
#ifndef COW_CUDA_KERNELS_ELEMENTS_H
#define COW_CUDA_KERNELS_ELEMENTS_H

#include "tensor/half.h"

#if defined(__CUDA_ARCH__)
/* The instructions round as the rules do, but they make NaN canonical. */
static __device__ __forceinline__ uint16_t cow__half_by_instruction(float f)
{
	unsigned short h;

	if (f != f)
		return cow__to_float16(f);
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
}
static __device__ __forceinline__ float cow__float_by_instruction(uint16_t h)
{
	float f;

	if ((h & 0x7fff) > 0x7c00)
		return cow__from_float16(h);
	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
	return f;
}
#define COW__TO_FLOAT16 cow__half_by_instruction
#define COW__FROM_FLOAT16 cow__float_by_instruction
#endif

#include "cowshed-tensor.h"
#include "cuda/kernels/walk.h"
#include "tensor/rules.h"

/* ---- conj and neg, on the bits of the source ---- */

template <class T>
static __device__ __forceinline__ T turn_int(T x, int bits)
{
	return bits & COW__KERNEL_NEG ? (T)(0 - (uint64_t)x) : x;
}
static __device__ __forceinline__ uint8_t turn_8(uint8_t x, int bits)
{
	return bits & COW__KERNEL_NEG ? x ^ 0x80 : x;
}
static __device__ __forceinline__ uint16_t turn_16(uint16_t x, int bits)
{
	return bits & COW__KERNEL_NEG ? x ^ 0x8000 : x;
}
static __device__ __forceinline__ float turn_32(float x, int bits)
{
	return bits & COW__KERNEL_NEG ? cow__bits_float(cow__float_bits(x) ^ 0x80000000u) : x;
}
static __device__ __forceinline__ double turn_64(double x, int bits)
{
	uint64_t u;

	if (!(bits & COW__KERNEL_NEG))
		return x;
	memcpy(&u, &x, 8);
	u ^= (uint64_t)1 << 63;
	memcpy(&x, &u, 8);
	return x;
}
/* The imaginary part changes its sign with one of the two bits, not with both. */
static __device__ __forceinline__ int turns_imaginary(int bits)
{
	return (bits & COW__KERNEL_NEG) ^ (bits & COW__KERNEL_CONJ ? COW__KERNEL_NEG : 0);
}
static __device__ __forceinline__ c16 turn_c16(c16 x, int bits)
{
	return cow__c16(turn_16(x.re, bits), turn_16(x.im, turns_imaginary(bits)));
}
static __device__ __forceinline__ cf turn_cf(cf x, int bits)
{
	return cow__cf(turn_32(x.re, bits), turn_32(x.im, turns_imaginary(bits)));
}
static __device__ __forceinline__ cd turn_cd(cd x, int bits)
{
	return cow__cd(turn_64(x.re, bits), turn_64(x.im, turns_imaginary(bits)));
}
#define turn_not(x, bits) (x)

/* ---- The types of each kind ---- */

#define FROM_I(X)                                                              \
	X(BOOL, uint8_t, I, TRUTH, turn_not)                                   \
	X(INT8, int8_t, I, SAME, turn_int)                                     \
	X(INT16, int16_t, I, SAME, turn_int)                                   \
	X(INT32, int32_t, I, SAME, turn_int)                                   \
	X(INT64, int64_t, I, SAME, turn_int)
#define FROM_U(X)                                                              \
	X(UINT8, uint8_t, U, SAME, turn_int)                                   \
	X(UINT16, uint16_t, U, SAME, turn_int)                                 \
	X(UINT32, uint32_t, U, SAME, turn_int)                                 \
	X(UINT64, uint64_t, U, SAME, turn_int)
#define FROM_F(X)                                                              \
	X(FLOAT16, uint16_t, F, COW__FROM_FLOAT16, turn_16)                    \
	X(BFLOAT16, uint16_t, F, cow__from_bfloat16, turn_16)                  \
	X(FLOAT32, float, F, SAME, turn_32)                                    \
	X(FLOAT8_E4M3FN, uint8_t, F, cow__from_float8_e4m3fn, turn_8)          \
	X(FLOAT8_E5M2, uint8_t, F, cow__from_float8_e5m2, turn_8)
#define FROM_D(X) X(FLOAT64, double, D, SAME, turn_64)
#define FROM_CF(X)                                                             \
	X(COMPLEX32, c16, CF, PAIR16, turn_c16)                                \
	X(COMPLEX64, cf, CF, SAME, turn_cf)
#define FROM_CD(X) X(COMPLEX128, cd, CD, SAME, turn_cd)

#define GET(NAME, type, kind, load, turn)                                      \
	case COW_##NAME: {                                                     \
		type raw[4];                                                   \
                                                                               \
		source.get(raw);                                               \
		COW_UNROLL                                                     \
		for (int i = 0; i < 4; i++) {                                  \
			type x = turn(raw[i], j.resolve);                      \
			WIDE_##kind v = load(x);                               \
                                                                               \
			wide[i] = v;                                           \
		}                                                              \
		break;                                                         \
	}

#define PUT(NAME, type, kind)                                                  \
	case COW_##NAME: {                                                     \
		type raw[4];                                                   \
                                                                               \
		COW_UNROLL                                                     \
		for (int i = 0; i < 4; i++) {                                  \
			WIDE_##kind v = wide[i];                               \
                                                                               \
			raw[i] = STORE_##NAME(kind);                           \
			(void)v;                                               \
		}                                                              \
		sink.put(raw);                                                 \
		break;                                                         \
	}

#define CONVERSION(kind)                                                       \
	template <class Source, class Sink>                                    \
	static __device__ __forceinline__ void convert_##kind(                 \
		const cow__kernel_job &j, const Source &source, const Sink &sink) \
	{                                                                      \
		WIDE_##kind wide[4];                                           \
                                                                               \
		switch (j.from_type) {                                         \
			FROM_##kind(GET)                                       \
		default:                                                       \
			return;                                                \
		}                                                              \
		switch (j.to_type) {                                           \
			PUT(BOOL, uint8_t, kind)                               \
			PUT(INT8, int8_t, kind)                                \
			PUT(INT16, int16_t, kind)                              \
			PUT(INT32, int32_t, kind)                              \
			PUT(INT64, int64_t, kind)                              \
			PUT(UINT8, uint8_t, kind)                              \
			PUT(UINT16, uint16_t, kind)                            \
			PUT(UINT32, uint32_t, kind)                            \
			PUT(UINT64, uint64_t, kind)                            \
			PUT(FLOAT16, uint16_t, kind)                           \
			PUT(BFLOAT16, uint16_t, kind)                          \
			PUT(FLOAT32, float, kind)                              \
			PUT(FLOAT64, double, kind)                             \
			PUT(COMPLEX32, c16, kind)                              \
			PUT(COMPLEX64, cf, kind)                               \
			PUT(COMPLEX128, cd, kind)                              \
			PUT(FLOAT8_E4M3FN, uint8_t, kind)                      \
			PUT(FLOAT8_E5M2, uint8_t, kind)                        \
		}                                                              \
	}
CONVERSION(I)
CONVERSION(U)
CONVERSION(F)
CONVERSION(D)
CONVERSION(CF)
CONVERSION(CD)

#endif
