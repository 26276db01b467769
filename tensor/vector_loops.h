/* SPDX-License-Identifier: MIT */
/*
 * Loops that compilers make vectors of
 *
 * One file for each level includes this. It defines TARGET (the instructions that the
 * compiler may use) and CHOOSE (the name of the function that picks a loop), and may
 * define WIDTH and the instructions for float16. Rows that are not dense go to the plain
 * function.
 *
 * There are intrinsics only where a loop is not enough: the compiler makes SSE2, AVX2,
 * AVX-512 and NEON of the same lines.
 */
#include "core/base/base.h"
#include "tensor/convert.h"
#include "tensor/half.h"

#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define DENSE(TO, to_type, FROM, from_type, ...)                               \
	TARGET static void loop_##TO##_##FROM(to_type *t, const from_type *f,  \
	                                      int64_t n)                       \
	{                                                                      \
		for (int64_t i = 0; i < n; i++) {                              \
			from_type x = f[i];                                    \
			t[i] = (to_type)(__VA_ARGS__);                         \
		}                                                              \
	}                                                                      \
	USE(TO, to_type, FROM, from_type)

/* Unaligned addresses go to the plain function, too: the loops need aligned elements. */
#define USE(TO, to_type, FROM, from_type)                                      \
	static void TO##_from_##FROM(void *to, int64_t to_stride,              \
	                             const void *from, int64_t from_stride,    \
	                             int64_t n)                                \
	{                                                                      \
		if (to_stride == sizeof(to_type) &&                            \
		    from_stride == sizeof(from_type) &&                        \
		    (((uintptr_t)to & (sizeof(to_type) - 1)) |                 \
		     ((uintptr_t)from & (sizeof(from_type) - 1))) == 0)        \
			loop_##TO##_##FROM(to, from, n);                       \
		else                                                           \
			cow__convert_plain(COW_##TO, COW_##FROM)(              \
			        to, to_stride, from, from_stride, n);          \
	}

#define TRUTH(x) ((x) != 0)

DENSE(BFLOAT16, uint16_t, FLOAT32, float, cow__to_bfloat16(x))
DENSE(FLOAT32, float, BFLOAT16, uint16_t, cow__from_bfloat16(x))
#if !defined(WIDTH)
DENSE(FLOAT16, uint16_t, FLOAT32, float, cow__to_float16(x))
DENSE(FLOAT32, float, FLOAT16, uint16_t, cow__from_float16(x))
DENSE(BFLOAT16, uint16_t, FLOAT16, uint16_t, cow__to_bfloat16(cow__from_float16(x)))
DENSE(FLOAT16, uint16_t, BFLOAT16, uint16_t, cow__to_float16(cow__from_bfloat16(x)))
#else /* the processor converts WIDTH of float16 at once */
TARGET static void
loop_FLOAT16_FLOAT32(uint16_t *t, const float *f, int64_t n)
{
	for (; n >= WIDTH; n -= WIDTH, f += WIDTH, t += WIDTH)
		STOREH(t, TOHALF(LOADF(f)));
	for (; n > 0; n--)
		*t++ = cow__to_float16(*f++);
}
USE(FLOAT16, uint16_t, FLOAT32, float)

TARGET static void
loop_FLOAT32_FLOAT16(float *t, const uint16_t *f, int64_t n)
{
	for (; n >= WIDTH; n -= WIDTH, f += WIDTH, t += WIDTH)
		STOREF(t, FROMHALF(LOADH(f)));
	for (; n > 0; n--)
		*t++ = cow__from_float16(*f++);
}
USE(FLOAT32, float, FLOAT16, uint16_t)

/* Through float, SOME elements at a time. */
#define SOME 256
#define BY_FLOAT(TO, FROM)                                                     \
	TARGET static void loop_##TO##_##FROM(uint16_t *t, const uint16_t *f,  \
	                                      int64_t n)                       \
	{                                                                      \
		float x[SOME];                                                 \
                                                                               \
		for (int64_t k; n > 0; n -= k, f += k, t += k) {               \
			k = n < SOME ? n : SOME;                               \
			loop_FLOAT32_##FROM(x, f, k);                          \
			loop_##TO##_FLOAT32(t, x, k);                          \
		}                                                              \
	}                                                                      \
	USE(TO, uint16_t, FROM, uint16_t)

BY_FLOAT(BFLOAT16, FLOAT16)
BY_FLOAT(FLOAT16, BFLOAT16)
#endif
DENSE(FLOAT32, float, FLOAT8_E4M3FN, uint8_t, cow__from_float8_e4m3fn(x))
DENSE(FLOAT8_E4M3FN, uint8_t, FLOAT32, float, cow__to_float8_e4m3fn(x))
DENSE(FLOAT32, float, FLOAT8_E5M2, uint8_t, cow__from_float8_e5m2(x))
DENSE(FLOAT8_E5M2, uint8_t, FLOAT32, float, cow__to_float8_e5m2(x))
DENSE(FLOAT64, double, FLOAT32, float, (double)x)
DENSE(FLOAT32, float, FLOAT64, double, (float)x)
DENSE(FLOAT64, double, BFLOAT16, uint16_t, (double)cow__from_bfloat16(x))

DENSE(FLOAT32, float, INT32, int32_t, (float)x)
DENSE(FLOAT64, double, INT32, int32_t, (double)x)
DENSE(FLOAT32, float, INT64, int64_t, (float)x)
DENSE(FLOAT64, double, INT64, int64_t, (double)x)
DENSE(FLOAT32, float, UINT8, uint8_t, (float)x)
DENSE(FLOAT64, double, UINT8, uint8_t, (double)x)
DENSE(FLOAT32, float, INT8, int8_t, (float)x)
DENSE(FLOAT32, float, INT16, int16_t, (float)x)
DENSE(FLOAT32, float, BOOL, uint8_t, (float)TRUTH(x))
DENSE(FLOAT64, double, BOOL, uint8_t, (double)TRUTH(x))
DENSE(BFLOAT16, uint16_t, UINT8, uint8_t, cow__to_bfloat16((float)x))
DENSE(BFLOAT16, uint16_t, BOOL, uint8_t, cow__to_bfloat16((float)TRUTH(x)))

DENSE(BOOL, uint8_t, FLOAT32, float, TRUTH(x))
DENSE(BOOL, uint8_t, FLOAT64, double, TRUTH(x))
DENSE(BOOL, uint8_t, INT32, int32_t, TRUTH(x))
DENSE(BOOL, uint8_t, INT64, int64_t, TRUTH(x))
DENSE(BOOL, uint8_t, UINT8, uint8_t, TRUTH(x))
DENSE(BOOL, uint8_t, FLOAT16, uint16_t, TRUTH(x & 0x7fff))
DENSE(BOOL, uint8_t, BFLOAT16, uint16_t, TRUTH(x & 0x7fff))

DENSE(INT64, int64_t, INT32, int32_t, x)
DENSE(INT32, int32_t, INT64, int64_t, x)
DENSE(INT32, int32_t, UINT8, uint8_t, x)
DENSE(INT64, int64_t, UINT8, uint8_t, x)
DENSE(INT32, int32_t, BOOL, uint8_t, TRUTH(x))
DENSE(INT64, int64_t, BOOL, uint8_t, TRUTH(x))
DENSE(UINT8, uint8_t, INT32, int32_t, x)
DENSE(UINT8, uint8_t, INT64, int64_t, x)
DENSE(UINT8, uint8_t, BOOL, uint8_t, TRUTH(x))
DENSE(INT32, int32_t, INT16, int16_t, x)
DENSE(INT16, int16_t, INT32, int32_t, x)

/*
 * To integers through int64. The vector instruction converts to int32 and gives INT32_MIN
 * for a number that does not fit. If a group has such a number, all of it is converted
 * one by one.
 */
static inline int64_t
whole(double d)
{
	return d >= -0x1p63 && d < 0x1p63 ? (int64_t)d : INT64_MIN;
}

/* Negative if the number is nearer to 0 than 2^31. Compilers make vectors of loops over
 * this, but not over comparisons of floats. */
static inline int32_t
fits_float(float f)
{
	return (int32_t)((cow__float_bits(f) & 0x7fffffff) - 0x4f000000);
}

static inline int32_t
fits_double(double d)
{
	uint64_t u;

	memcpy(&u, &d, 8);
	return (int32_t)((uint32_t)(u >> 32 & 0x7fffffff) - 0x41e00000);
}

#define fits(x) _Generic((x), float: fits_float, double: fits_double)(x)

#define GROUP 64
#define TRUNCATE(TO, to_type, FROM, from_type)                                 \
	TARGET static void loop_##TO##_##FROM(to_type *t, const from_type *f,  \
	                                      int64_t n)                       \
	{                                                                      \
		for (; n >= GROUP; n -= GROUP, f += GROUP, t += GROUP) {       \
			int32_t all = -1;                                      \
                                                                               \
			for (int i = 0; i < GROUP; i++)                        \
				all &= fits(f[i]);                             \
			if (cow__unlikely(all >= 0)) {                         \
				for (int i = 0; i < GROUP; i++)                \
					t[i] = (to_type)whole(f[i]);           \
				continue;                                      \
			}                                                      \
			for (int i = 0; i < GROUP; i++)                        \
				t[i] = (to_type)(int32_t)f[i];                 \
		}                                                              \
		for (; n > 0; n--)                                             \
			*t++ = (to_type)whole(*f++);                           \
	}                                                                      \
	USE(TO, to_type, FROM, from_type)

TRUNCATE(INT32, int32_t, FLOAT32, float)
TRUNCATE(INT64, int64_t, FLOAT32, float)
TRUNCATE(UINT8, uint8_t, FLOAT32, float)
TRUNCATE(INT8, int8_t, FLOAT32, float)
TRUNCATE(INT16, int16_t, FLOAT32, float)
TRUNCATE(INT32, int32_t, FLOAT64, double)
TRUNCATE(INT64, int64_t, FLOAT64, double)
TRUNCATE(UINT8, uint8_t, FLOAT64, double)

#define PICK(TO, FROM)                                                         \
	if (to == COW_##TO && from == COW_##FROM)                              \
		return TO##_from_##FROM;

cow__convert_fn *
CHOOSE(enum cow_dtype to, enum cow_dtype from)
{
	PICK(BFLOAT16, FLOAT32) PICK(FLOAT32, BFLOAT16)
	PICK(FLOAT16, FLOAT32) PICK(FLOAT32, FLOAT16)
	PICK(BFLOAT16, FLOAT16) PICK(FLOAT16, BFLOAT16)
	PICK(FLOAT32, FLOAT8_E4M3FN) PICK(FLOAT8_E4M3FN, FLOAT32)
	PICK(FLOAT32, FLOAT8_E5M2) PICK(FLOAT8_E5M2, FLOAT32)
	PICK(FLOAT64, FLOAT32) PICK(FLOAT32, FLOAT64) PICK(FLOAT64, BFLOAT16)
	PICK(FLOAT32, INT32) PICK(FLOAT64, INT32) PICK(FLOAT32, INT64)
	PICK(FLOAT64, INT64) PICK(FLOAT32, UINT8) PICK(FLOAT64, UINT8)
	PICK(FLOAT32, INT8) PICK(FLOAT32, INT16)
	PICK(FLOAT32, BOOL) PICK(FLOAT64, BOOL)
	PICK(BFLOAT16, UINT8) PICK(BFLOAT16, BOOL)
	PICK(BOOL, FLOAT32) PICK(BOOL, FLOAT64) PICK(BOOL, INT32)
	PICK(BOOL, INT64) PICK(BOOL, UINT8) PICK(BOOL, FLOAT16)
	PICK(BOOL, BFLOAT16)
	PICK(INT64, INT32) PICK(INT32, INT64) PICK(INT32, UINT8)
	PICK(INT64, UINT8) PICK(INT32, BOOL) PICK(INT64, BOOL)
	PICK(UINT8, INT32) PICK(UINT8, INT64) PICK(UINT8, BOOL)
	PICK(INT32, INT16) PICK(INT16, INT32)
	PICK(INT32, FLOAT32) PICK(INT64, FLOAT32) PICK(UINT8, FLOAT32)
	PICK(INT8, FLOAT32) PICK(INT16, FLOAT32)
	PICK(INT32, FLOAT64) PICK(INT64, FLOAT64) PICK(UINT8, FLOAT64)
	return NULL;
}
