/* SPDX-License-Identifier: MIT */
/*
 * Conversions of rows of elements. See the header.
 *
 * An element is loaded as one of six wide kinds, and stored from it:
 *
 *      I int64, U uint64, F float, D double, CF two floats, CD two doubles
 *
 * tensor/rules.h has the rules. The preprocessor makes the functions of the 324 pairs from
 * two lists.
 */
#include "tensor/convert.h"
#include "core/base/base.h"
#include "tensor/dtype.h"
#include "tensor/rules.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- The types: name, what lies in memory, kind, its load ---- */

/* The same list twice, because a macro can't expand itself. */
#define TYPES(X, with)                                                         \
	X(with, BOOL, uint8_t, I, TRUTH)                                       \
	X(with, INT8, int8_t, I, SAME)                                         \
	X(with, INT16, int16_t, I, SAME)                                       \
	X(with, INT32, int32_t, I, SAME)                                       \
	X(with, INT64, int64_t, I, SAME)                                       \
	X(with, UINT8, uint8_t, U, SAME)                                       \
	X(with, UINT16, uint16_t, U, SAME)                                     \
	X(with, UINT32, uint32_t, U, SAME)                                     \
	X(with, UINT64, uint64_t, U, SAME)                                     \
	X(with, FLOAT16, uint16_t, F, COW__FROM_FLOAT16)                       \
	X(with, BFLOAT16, uint16_t, F, cow__from_bfloat16)                     \
	X(with, FLOAT32, float, F, SAME)                                       \
	X(with, FLOAT64, double, D, SAME)                                      \
	X(with, COMPLEX32, struct c16, CF, PAIR16)                             \
	X(with, COMPLEX64, struct cf, CF, SAME)                                \
	X(with, COMPLEX128, struct cd, CD, SAME)                               \
	X(with, FLOAT8_E4M3FN, uint8_t, F, cow__from_float8_e4m3fn)            \
	X(with, FLOAT8_E5M2, uint8_t, F, cow__from_float8_e5m2)
#define TYPES_TO(X, ...)                                                       \
	X(BOOL, uint8_t, __VA_ARGS__) X(INT8, int8_t, __VA_ARGS__)             \
	X(INT16, int16_t, __VA_ARGS__) X(INT32, int32_t, __VA_ARGS__)          \
	X(INT64, int64_t, __VA_ARGS__) X(UINT8, uint8_t, __VA_ARGS__)          \
	X(UINT16, uint16_t, __VA_ARGS__) X(UINT32, uint32_t, __VA_ARGS__)      \
	X(UINT64, uint64_t, __VA_ARGS__) X(FLOAT16, uint16_t, __VA_ARGS__)     \
	X(BFLOAT16, uint16_t, __VA_ARGS__) X(FLOAT32, float, __VA_ARGS__)      \
	X(FLOAT64, double, __VA_ARGS__) X(COMPLEX32, struct c16, __VA_ARGS__)  \
	X(COMPLEX64, struct cf, __VA_ARGS__)                                   \
	X(COMPLEX128, struct cd, __VA_ARGS__)                                  \
	X(FLOAT8_E4M3FN, uint8_t, __VA_ARGS__)                                 \
	X(FLOAT8_E5M2, uint8_t, __VA_ARGS__)

/* Addresses may be unaligned: hence memcpy, which the compiler makes a plain load. */
#define PAIR(TO, to_type, FROM, from_type, kind, load)                         \
	static void TO##_from_##FROM(void *to, int64_t to_stride,              \
	                             const void *from, int64_t from_stride,    \
	                             int64_t n)                                \
	{                                                                      \
		char *t = to;                                                  \
		const char *f = from;                                          \
                                                                               \
		for (; n > 0; n--, t += to_stride, f += from_stride) {         \
			from_type x;                                           \
			to_type r;                                             \
                                                                               \
			memcpy(&x, f, sizeof(x));                              \
			WIDE_##kind v = load(x);                               \
			(void)v;                                               \
			r = STORE_##TO(kind);                                  \
			memcpy(t, &r, sizeof(r));                              \
		}                                                              \
	}
#define PAIRS(with, FROM, from_type, kind, load)                               \
	TYPES_TO(PAIR, FROM, from_type, kind, load)
TYPES(PAIRS, )

#define ENTRY(TO, to_type, FROM) [COW_##TO][COW_##FROM] = TO##_from_##FROM,
#define ENTRIES(with, FROM, from_type, kind, load) TYPES_TO(ENTRY, FROM)
static cow__convert_fn *const plain[COW__PLAIN_DTYPES][COW__PLAIN_DTYPES] = {
	TYPES(ENTRIES, )
};

/* The same type: bytes. */
#define MOVE(bytes)                                                            \
	static void move_##bytes(void *to, int64_t to_stride,                  \
	                         const void *from, int64_t from_stride,        \
	                         int64_t n)                                    \
	{                                                                      \
		char *t = to;                                                  \
		const char *f = from;                                          \
                                                                               \
		if (to_stride == bytes && from_stride == bytes && n > 0) {     \
			if (to != from)                                        \
				memmove(to, from, (size_t)n * bytes);          \
			return;                                                \
		}                                                              \
		for (; n > 0; n--, t += to_stride, f += from_stride) {         \
			struct { char b[bytes]; } x;                           \
                                                                               \
			memcpy(&x, f, bytes);                                  \
			memcpy(t, &x, bytes);                                  \
		}                                                              \
	}
MOVE(1)
MOVE(2)
MOVE(4)
MOVE(8)
MOVE(16)

/* ---- conj and neg ---- */

#if defined(__clang__)
#define WIDE
#else
#define WIDE __attribute__((optimize("O3")))
#endif

#define RESOLVE(name, type, change)                                            \
	WIDE static void name(void *to, int64_t to_stride, const void *from,        \
	                 int64_t from_stride, int64_t n)                       \
	{                                                                      \
		char *t = to;                                                  \
		const char *f = from;                                          \
                                                                               \
		if (to_stride == sizeof(type) && from_stride == sizeof(type))  \
			for (; n > 0; n--, t += sizeof(type), f += sizeof(type)) { \
				type x;                                        \
                                                                               \
				memcpy(&x, f, sizeof(x));                      \
				change;                                        \
				memcpy(t, &x, sizeof(x));                      \
			}                                                      \
		for (; n > 0; n--, t += to_stride, f += from_stride) {         \
			type x;                                                \
                                                                               \
			memcpy(&x, f, sizeof(x));                              \
			change;                                                \
			memcpy(t, &x, sizeof(x));                              \
		}                                                              \
	}
struct bits128 {
	uint64_t re, im;
};
#define SIGN64 ((uint64_t)1 << 63)
RESOLVE(negate_8, uint8_t, x = (uint8_t)-x)
RESOLVE(negate_16, uint16_t, x = (uint16_t)-x)
RESOLVE(negate_32, uint32_t, x = -x)
RESOLVE(negate_64, uint64_t, x = -x)
RESOLVE(sign_8, uint8_t, x ^= 0x80)
RESOLVE(sign_16, uint16_t, x ^= 0x8000)
RESOLVE(sign_32, uint32_t, x ^= 0x80000000u)
RESOLVE(sign_64, uint64_t, x ^= SIGN64)
RESOLVE(imag_32, struct c16, x.im ^= 0x8000)
RESOLVE(real_32, struct c16, x.re ^= 0x8000)
RESOLVE(both_32, uint32_t, x ^= 0x80008000u)
/* Little-endian: the imaginary part is the high half. */
RESOLVE(imag_64, uint64_t, x ^= SIGN64)
RESOLVE(real_64, uint64_t, x ^= SIGN64 >> 32)
RESOLVE(both_64, uint64_t, x ^= SIGN64 | SIGN64 >> 32)
RESOLVE(imag_128, struct bits128, x.im ^= SIGN64)
RESOLVE(real_128, struct bits128, x.re ^= SIGN64)
RESOLVE(both_128, struct bits128, (x.re ^= SIGN64, x.im ^= SIGN64))

static cow__convert_fn *
resolver(enum cow_dtype type, unsigned bits)
{
	static cow__convert_fn *const of_complex[3][4] = {
		{ NULL, imag_32, both_32, real_32 },
		{ NULL, imag_64, both_64, real_64 },
		{ NULL, imag_128, both_128, real_128 },
	};
	static cow__convert_fn *const of_real[COW__PLAIN_DTYPES] = {
		[COW_INT8] = negate_8, [COW_UINT8] = negate_8,
		[COW_INT16] = negate_16, [COW_UINT16] = negate_16,
		[COW_INT32] = negate_32, [COW_UINT32] = negate_32,
		[COW_INT64] = negate_64, [COW_UINT64] = negate_64,
		[COW_FLOAT16] = sign_16, [COW_BFLOAT16] = sign_16,
		[COW_FLOAT32] = sign_32, [COW_FLOAT64] = sign_64,
		[COW_FLOAT8_E4M3FN] = sign_8, [COW_FLOAT8_E5M2] = sign_8,
	};

	if (type >= COW_COMPLEX32 && type <= COW_COMPLEX128)
		return of_complex[type - COW_COMPLEX32][bits & 3];
	return bits & COW__CONVERT_NEG ? of_real[type] : NULL;
}

/* ---- Which one ---- */

cow__convert_fn *
cow__convert_plain(enum cow_dtype to, enum cow_dtype from)
{
	static cow__convert_fn *const moves[17] = {
		[1] = move_1, [2] = move_2, [4] = move_4,
		[8] = move_8, [16] = move_16,
	};

	return to == from ? moves[cow_dtype_bytes(to)] : plain[to][from];
}

#if defined(__x86_64__)
/* Not every compiler knows this name for __builtin_cpu_supports(). That the kernel keeps the
 * registers is known from AVX2. */
static bool
has_f16c(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

bool
cow__vector_can(int level)
{
#if defined(__x86_64__)
	if (level == 1)
		return __builtin_cpu_supports("avx2") && has_f16c();
	if (level == 2)
		return __builtin_cpu_supports("avx512f") &&
		       __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("avx512vl");
#endif
	return level == 0;
}

cow__convert_fn *
cow__convert_vector(int level, enum cow_dtype to, enum cow_dtype from)
{
	if (!cow__vector_can(level))
		return NULL;
#if defined(__x86_64__)
	if (level > 0)
		return level == 1 ? cow__vector_avx2(to, from)
		                  : cow__vector_avx512(to, from);
#endif
	return cow__vector_base(to, from);
}

struct cow__conversion
cow__conversion(enum cow_dtype to, enum cow_dtype from, unsigned bits)
{
	/* The best version for each pair. Threads that race find the same. */
	static cow__convert_fn *best[COW__PLAIN_DTYPES][COW__PLAIN_DTYPES];
	cow__convert_fn *fn = __atomic_load_n(&best[to][from], __ATOMIC_RELAXED);
	struct cow__conversion c;

	for (int level = COW__VECTOR_LEVELS; !fn && level-- > 0;)
		fn = to == from ? NULL : cow__convert_vector(level, to, from);
	if (!fn)
		fn = cow__convert_plain(to, from);
	__atomic_store_n(&best[to][from], fn, __ATOMIC_RELAXED);
	c = (struct cow__conversion){
		.convert = fn,
		.resolve = resolver(from, bits),
		.from_bytes = (uint32_t)cow_dtype_bytes(from),
	};
	if (to == from && c.resolve) {
		c.convert = c.resolve;
		c.resolve = NULL;
	}
	return c;
}

void
cow__convert(const struct cow__conversion *c, void *to, int64_t to_stride,
             const void *from, int64_t from_stride, int64_t n)
{
	_Alignas(64) char buf[2048];
	int64_t size = c->from_bytes, most = (int64_t)sizeof(buf) / size, k;

	if (!c->resolve) {
		c->convert(to, to_stride, from, from_stride, n);
		return;
	}
	for (; n > 0; n -= k) {
		k = n < most ? n : most;
		c->resolve(buf, size, from, from_stride, k);
		c->convert(to, to_stride, buf, size, k);
		to = (char *)to + k * to_stride;
		from = (const char *)from + k * from_stride;
	}
}
