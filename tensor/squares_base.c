/* SPDX-License-Identifier: MIT */
/*
 * Transpositions with what every processor of the architecture has: SSE2, NEON
 */
#include <stdint.h>
#include <string.h>

typedef uint8_t vec __attribute__((vector_size(16)));
typedef uint16_t vec2 __attribute__((vector_size(16)));
typedef uint32_t vec4 __attribute__((vector_size(16)));
typedef uint64_t vec8 __attribute__((vector_size(16)));

static inline vec
load(const char *from)
{
	vec v;

	memcpy(&v, from, sizeof(v));
	return v;
}

#define TARGET
#define SQUARES cow__squares_base
#define LANES 1
#define LOAD(from, apart) load(from)
#define INTERLEAVE_1(low, high, a, b)                                          \
	(low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4,    \
	                               20, 5, 21, 6, 22, 7, 23),               \
	 high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27,    \
	                                12, 28, 13, 29, 14, 30, 15, 31))
#define INTERLEAVE_2(low, high, a, b)                                          \
	(low = (vec)__builtin_shufflevector((vec2)a, (vec2)b, 0, 8, 1, 9, 2,   \
	                                    10, 3, 11),                        \
	 high = (vec)__builtin_shufflevector((vec2)a, (vec2)b, 4, 12, 5, 13,   \
	                                     6, 14, 7, 15))
#define INTERLEAVE_4(low, high, a, b)                                          \
	(low = (vec)__builtin_shufflevector((vec4)a, (vec4)b, 0, 4, 1, 5),     \
	 high = (vec)__builtin_shufflevector((vec4)a, (vec4)b, 2, 6, 3, 7))
#define INTERLEAVE_8(low, high, a, b)                                          \
	(low = (vec)__builtin_shufflevector((vec8)a, (vec8)b, 0, 2),           \
	 high = (vec)__builtin_shufflevector((vec8)a, (vec8)b, 1, 3))
#include "tensor/squares.h"
