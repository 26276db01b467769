/* SPDX-License-Identifier: MIT */
/*
 * Transpositions with AVX2
 */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

typedef __m256i vec;

#define TARGET __attribute__((target("avx2")))
#define SQUARES cow__squares_avx2
#define LANES 2

TARGET static inline vec
load(const char *from, int64_t apart)
{
	vec v = _mm256_castsi128_si256(_mm_loadu_si128((const void *)from));

	return _mm256_inserti128_si256(
	        v, _mm_loadu_si128((const void *)(from + apart)), 1);
}

#define LOAD(from, apart) load(from, apart)
#define INTERLEAVE(bits, low, high, a, b)                                      \
	(low = _mm256_unpacklo_epi##bits(a, b),                                \
	 high = _mm256_unpackhi_epi##bits(a, b))
#define INTERLEAVE_2(low, high, a, b) INTERLEAVE(16, low, high, a, b)
#define INTERLEAVE_4(low, high, a, b) INTERLEAVE(32, low, high, a, b)
#define INTERLEAVE_8(low, high, a, b) INTERLEAVE(64, low, high, a, b)
#include "tensor/squares.h"

#else
typedef int cow__nothing_here;
#endif
