/* SPDX-License-Identifier: MIT */
/*
 * Transpositions in registers
 *
 * One file for each level of vectors includes this. It defines
 *
 *   TARGET        the instructions that the compiler may use
 *   SQUARES       the name of the function that is made
 *   LANES         how many lanes of 16 bytes a register has
 *   vec           the type of a register
 *   LOAD          loads 16 bytes to each lane, from rows at a given distance
 *   INTERLEAVE_x  interleaves the low and the high halves of two registers, lane by lane,
 *                 in units of x bytes
 *
 * N units fill a lane. N registers hold N rows in their first lanes, the N rows below
 * in their second ones, and so on. log2(N) steps transpose all lanes. Each step
 * interleaves register r with register r + N/2:
 *
 *      a0 a1 a2 a3        a0 c0 a1 c1        a0 b0 c0 d0
 *      b0 b1 b2 b3   ->   a2 c2 a3 c3   ->   a1 b1 c1 d1
 *      c0 c1 c2 c3        b0 d0 b1 d1        a2 b2 c2 d2
 *      d0 d1 d2 d3        b2 d2 b3 d3        a3 b3 c3 d3
 *
 * Each store has the width of a register, at most a line. No unit crosses from one lane
 * to another, which would be slow.
 */
#include "core/base/base.h"
#include "tensor/transpose.h"

#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif

struct unit_1 {
	uint8_t u;
};
struct unit_2 {
	uint16_t u;
} __attribute__((packed, may_alias));
struct unit_4 {
	uint32_t u;
} __attribute__((packed, may_alias));
struct unit_8 {
	uint64_t u;
} __attribute__((packed, may_alias));

/* A piece of each row is read in turn, which processors do not predict. Rows that follow
 * each other are prefetched AHEAD bytes before. Rows that are far apart share a few places
 * of a cache, so only those that are needed next are prefetched, just before. */
#define AHEAD 4096

static inline __attribute__((always_inline)) void /* or gcc thinks it does nothing */
ahead(const char *from, int64_t from_i, int64_t ni, int64_t bytes)
{
	int64_t rows = from_i * ni, near = bytes > 128 ? 2 * bytes : 256;

	if (from_i <= near && -from_i <= near) {
		for (int64_t at = 0; at < rows; at += 64)
			__builtin_prefetch(from + AHEAD + at);
		for (int64_t at = 0; at > rows; at -= 64)
			__builtin_prefetch(from - AHEAD + at);
		return;
	}
	for (; ni > 0; ni--, from += from_i)
		for (int64_t at = 0; at < bytes; at += 64)
			__builtin_prefetch(from + at);
}

#define LINE 64
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define BLOCK(B, N, i0, j0)                                                    \
	for (int64_t i = i0; i < LEAST(i0 + LINE / B, ni); i += LANES * N)     \
		for (int64_t j = j0; j < LEAST(j0 + LINE / B, nj); j += N) {   \
			int64_t at = LEAST(i, ni - LANES * N);                 \
			int64_t k = LEAST(j, nj - N);                          \
                                                                               \
			square_##B(to + at * B + k * to_j, to_j,               \
			           from + at * from_i + k * B, from_i, N, N);  \
		}

#define TURN(B, N)                                                             \
	/* Of N times LANES rows and N columns only the first so many count:   \
	 * the other rows are not read, the other columns not written. */      \
	TARGET static inline __attribute__((always_inline)) void square_##B(   \
	        char *to, int64_t to_j, const char *from, int64_t from_i,      \
	        int64_t rows, int64_t columns)                                 \
	{                                                                      \
		vec a[N], b[N];                                                \
                                                                               \
		_Pragma("GCC unroll 16")                                       \
		for (int64_t r = 0; r < N; r++)                                \
			a[r] = LOAD(from + (r < rows ? r : 0) * from_i,        \
			            N * from_i);                               \
		_Pragma("GCC unroll 4")                                        \
		for (int step = 1; step < N; step *= 2) {                      \
			_Pragma("GCC unroll 8")                                \
			for (int r = 0; r < N / 2; r++)                        \
				INTERLEAVE_##B(b[2 * r], b[2 * r + 1], a[r],   \
				               a[r + N / 2]);                  \
			_Pragma("GCC unroll 16")                               \
			for (int r = 0; r < N; r++)                            \
				a[r] = b[r];                                   \
		}                                                              \
		_Pragma("GCC unroll 16")                                       \
		for (int64_t r = 0; r < N; r++)                                \
			if (r < columns)                                       \
				memcpy(to + r * to_j, &a[r], sizeof(vec));     \
	}                                                                      \
                                                                               \
	/* Blocks of a line by a line, so that those of the source are used up   \
	 * and those of the destination filled while they are in the first     \
	 * cache. At the edges squares overlap: the same is written twice. */  \
	TARGET static void squares_##B(char *to, int64_t to_j,                 \
	                               const char *from, int64_t from_i,       \
	                               int64_t ni, int64_t nj)                 \
	{                                                                      \
		for (int64_t i0 = 0; i0 < ni; i0 += LINE / B) {                \
			ahead(from + i0 * from_i, from_i,                      \
			      LEAST(LINE / B, ni - i0), nj * B);               \
			for (int64_t j0 = 0; j0 < nj; j0 += LINE / B)          \
				BLOCK(B, N, i0, j0)                            \
		}                                                              \
	}                                                                      \
                                                                               \
	/* Short rows without gaps: a read goes on to the next rows, so the    \
	 * last ones are left to the caller. */                                \
	TARGET static int64_t narrow_##B(char *to, int64_t to_j,               \
	                                 const char *from, int64_t ni,         \
	                                 int64_t nj)                           \
	{                                                                      \
		int64_t i = 0, most = ni - (N - 1) / nj - LANES * N;           \
                                                                               \
		for (; i <= most; i += LANES * N)                              \
			square_##B(to + i * B, to_j, from + i * nj * B,        \
			           nj * B, N, nj);                             \
		return i;                                                      \
	}                                                                      \
                                                                               \
	/* Few rows become short ones without gaps: a write goes on to the     \
	 * next ones, which are written later. */                              \
	TARGET static int64_t flat_##B(char *to, const char *from,             \
	                               int64_t from_i, int64_t ni, int64_t nj) \
	{                                                                      \
		int64_t j = 0, most = nj - (N - 1) / ni - N;                   \
                                                                               \
		for (; j <= most; j += N)                                      \
			square_##B(to + j * ni * B, ni * B, from + j * B,      \
			           from_i, ni, N);                             \
		for (; j < nj; j++)                                            \
			for (int64_t i = 0; i < ni; i++)                       \
				memcpy(to + (j * ni + i) * B,                  \
				       from + i * from_i + j * B, B);          \
		return ni;                                                     \
	}                                                                      \
                                                                               \
	TARGET static int64_t every_other_##B(char *to, const char *from,      \
	                                      int64_t n)                       \
	{                                                                      \
		struct unit_##B *t = (void *)to;                               \
		const struct unit_##B *f = (const void *)from;                 \
                                                                               \
		for (int64_t i = 0; i < n; i++)                                \
			t[i].u = f[2 * i].u;                                   \
		return n;                                                      \
	}                                                                      \
                                                                               \
	static int64_t turn_##B(char *to, int64_t to_j, const char *from,      \
	                        int64_t from_i, int64_t ni, int64_t nj)        \
	{                                                                      \
		if (nj == 1)                                                   \
			return from_i == 2 * B ? every_other_##B(to, from, ni) \
			                       : 0;                            \
		if (nj < N)                                                    \
			return from_i == nj * B                                \
			               ? narrow_##B(to, to_j, from, ni, nj)    \
			               : 0;                                    \
		if (ni >= LANES * N) {                                         \
			squares_##B(to, to_j, from, from_i, ni, nj);           \
			return ni;                                             \
		}                                                              \
		if (LANES == 1 && to_j == ni * B)                              \
			return flat_##B(to, from, from_i, ni, nj);             \
		return 0;                                                      \
	}

/* At most 16 rows: a line of each must stay in the first cache until all of it is used, and
 * rows that are a power of two apart share a few places there. */
#if LANES <= 1
TURN(1, 16)
#endif
#if LANES <= 2
TURN(2, 8)
#endif
TURN(4, 4)
TURN(8, 2)

int64_t
SQUARES(char *to, int64_t to_j, const char *from, int64_t from_i, int64_t ni,
        int64_t nj, int64_t bytes)
{
	switch (bytes) {
#if LANES <= 1
	case 1:
		return turn_1(to, to_j, from, from_i, ni, nj);
#endif
#if LANES <= 2
	case 2:
		return turn_2(to, to_j, from, from_i, ni, nj);
#endif
	case 4:
		return turn_4(to, to_j, from, from_i, ni, nj);
	case 8:
		return turn_8(to, to_j, from, from_i, ni, nj);
	default:
		return 0;
	}
}
