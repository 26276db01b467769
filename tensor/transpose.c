/* SPDX-License-Identifier: MIT */
/*
 * Small transpositions: see the header.
 *
 * A square of n units that fill n registers of 16 bytes is turned over in log2(n)
 * steps, of which each interleaves register r with register r + n/2:
 *
 *      a0 a1 a2 a3        a0 c0 a1 c1        a0 b0 c0 d0
 *      b0 b1 b2 b3   ->   a2 c2 a3 c3   ->   a1 b1 c1 d1
 *      c0 c1 c2 c3        b0 d0 b1 d1        a2 b2 c2 d2
 *      d0 d1 d2 d3        b2 d2 b3 d3        a3 b3 c3 d3
 *
 * 16 bytes at a time keep up with memory (docs/design/copy-engine.md).
 */
#include "tensor/transpose.h"
#include "core/base.h"

typedef uint8_t v1 __attribute__((vector_size(16)));
typedef uint16_t v2 __attribute__((vector_size(16)));
typedef uint32_t v4 __attribute__((vector_size(16)));
typedef uint64_t v8 __attribute__((vector_size(16)));

#define LOW1 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH1 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW2 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH2 4, 12, 5, 13, 6, 14, 7, 15
#define LOW4 0, 4, 1, 5
#define HIGH4 2, 6, 3, 7
#define LOW8 0, 2
#define HIGH8 1, 3

/* N units of B bytes. */
#define SQUARE(B, N)                                                           \
	static inline __attribute__((always_inline)) void square_##B(          \
	        char *to, int64_t to_j, const char *from, int64_t from_i)      \
	{                                                                      \
		v##B a[N], b[N];                                               \
                                                                               \
		_Pragma("GCC unroll 16")                                       \
		for (int r = 0; r < N; r++)                                    \
			memcpy(&a[r], from + r * from_i, 16);                  \
		_Pragma("GCC unroll 4")                                        \
		for (int step = 1; step < N; step *= 2) {                      \
			_Pragma("GCC unroll 8")                                \
			for (int r = 0; r < N / 2; r++) {                      \
				b[2 * r] = __builtin_shufflevector(            \
				        a[r], a[r + N / 2], LOW##B);           \
				b[2 * r + 1] = __builtin_shufflevector(        \
				        a[r], a[r + N / 2], HIGH##B);          \
			}                                                      \
			_Pragma("GCC unroll 16")                               \
			for (int r = 0; r < N; r++)                            \
				a[r] = b[r];                                   \
		}                                                              \
		_Pragma("GCC unroll 16")                                       \
		for (int r = 0; r < N; r++)                                    \
			memcpy(to + r * to_j, &a[r], 16);                      \
	}
SQUARE(1, 16)
SQUARE(2, 8)
SQUARE(4, 4)
SQUARE(8, 2)

/* Unit by unit, the longer side innermost. */
#define ONE_BY_ONE(name, copy)                                                 \
	static void name(char *to, int64_t to_i, int64_t to_j,                 \
	                 const char *from, int64_t from_i, int64_t from_j,     \
	                 int64_t ni, int64_t nj, int64_t bytes)                \
	{                                                                      \
		(void)bytes;                                                   \
		if (ni < nj) {                                                 \
			for (int64_t i = 0; i < ni; i++)                       \
				for (int64_t j = 0; j < nj; j++)               \
					copy(to + i * to_i + j * to_j,         \
					     from + i * from_i + j * from_j);  \
			return;                                                \
		}                                                              \
		for (int64_t j = 0; j < nj; j++)                               \
			for (int64_t i = 0; i < ni; i++)                       \
				copy(to + i * to_i + j * to_j,                 \
				     from + i * from_i + j * from_j);          \
	}
#define COPY_1(t, f) memcpy(t, f, 1)
#define COPY_2(t, f) memcpy(t, f, 2)
#define COPY_4(t, f) memcpy(t, f, 4)
#define COPY_8(t, f) memcpy(t, f, 8)
#define COPY_12(t, f) memcpy(t, f, 12)
#define COPY_16(t, f) memcpy(t, f, 16)
#define COPY_ANY(t, f) memcpy(t, f, (size_t)bytes)
ONE_BY_ONE(one_1, COPY_1)
ONE_BY_ONE(one_2, COPY_2)
ONE_BY_ONE(one_4, COPY_4)
ONE_BY_ONE(one_8, COPY_8)
ONE_BY_ONE(one_12, COPY_12)
ONE_BY_ONE(one_16, COPY_16)
ONE_BY_ONE(one_any, COPY_ANY)

/* Squares, and what is left over at two edges. */
#define WITH_SQUARES(B, N)                                                     \
	static void squares_##B(char *to, int64_t to_j, const char *from,      \
	                        int64_t from_i, int64_t ni, int64_t nj)        \
	{                                                                      \
		int64_t si = ni & ~(int64_t)(N - 1), sj = nj & ~(int64_t)(N - 1); \
                                                                               \
		for (int64_t i = 0; i < si; i += N)                            \
			for (int64_t j = 0; j < sj; j += N)                    \
				square_##B(to + i * B + j * to_j, to_j,        \
				           from + i * from_i + j * B, from_i); \
		if (sj < nj)                                                   \
			one_##B(to + sj * to_j, B, to_j, from + sj * B,        \
			        from_i, B, si, nj - sj, B);                    \
		if (si < ni)                                                   \
			one_##B(to + si * B, B, to_j, from + si * from_i,      \
			        from_i, B, ni - si, nj, B);                    \
	}
WITH_SQUARES(1, 16)
WITH_SQUARES(2, 8)
WITH_SQUARES(4, 4)
WITH_SQUARES(8, 2)

void
cow__transpose(char *to, int64_t to_i, int64_t to_j, const char *from,
               int64_t from_i, int64_t from_j, int64_t ni, int64_t nj,
               int64_t bytes)
{
	bool dense = to_i == bytes && from_j == bytes;

#define EITHER(B)                                                              \
	case B:                                                                \
		if (dense)                                                     \
			squares_##B(to, to_j, from, from_i, ni, nj);           \
		else                                                           \
			one_##B(to, to_i, to_j, from, from_i, from_j, ni, nj,  \
			        B);                                            \
		break
	switch (bytes) {
	EITHER(1);
	EITHER(2);
	EITHER(4);
	EITHER(8);
	case 12:
		one_12(to, to_i, to_j, from, from_i, from_j, ni, nj, 12);
		break;
	case 16:
		one_16(to, to_i, to_j, from, from_i, from_j, ni, nj, 16);
		break;
	default:
		one_any(to, to_i, to_j, from, from_i, from_j, ni, nj, bytes);
	}
}
