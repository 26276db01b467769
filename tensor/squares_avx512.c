/* SPDX-License-Identifier: MIT */
/*
 * Transpositions with AVX-512: a line at a time
 */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

typedef __m512i vec;

#define TARGET __attribute__((target("avx512f")))
#define SQUARES cow__squares_avx512
#define LANES 4

TARGET static inline __m128i
lane(const char *from)
{
	return _mm_loadu_si128((const void *)from);
}

TARGET static inline vec
load(const char *from, int64_t apart)
{
	vec v = _mm512_castsi128_si512(lane(from));

	v = _mm512_inserti32x4(v, lane(from + apart), 1);
	v = _mm512_inserti32x4(v, lane(from + 2 * apart), 2);
	return _mm512_inserti32x4(v, lane(from + 3 * apart), 3);
}

#define LOAD(from, apart) load(from, apart)
#define INTERLEAVE(bits, low, high, a, b)                                      \
	(low = _mm512_unpacklo_epi##bits(a, b),                                \
	 high = _mm512_unpackhi_epi##bits(a, b))
#define INTERLEAVE_4(low, high, a, b) INTERLEAVE(32, low, high, a, b)
#define INTERLEAVE_8(low, high, a, b) INTERLEAVE(64, low, high, a, b)
#include "tensor/squares.h"

#else
typedef int cow__nothing_here;
#endif
