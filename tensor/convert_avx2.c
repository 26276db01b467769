/* SPDX-License-Identifier: MIT */
/*
 * Conversions with AVX2 and F16C
 *
 * F16C rounds as half.h does, with an explicit mode, and keeps the same payloads of NaN.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c")))
#define CHOOSE cow__vector_avx2
#define WIDTH 8
#define ROUND (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define LOADF(f) _mm256_loadu_ps(f)
#define STOREF(t, x) _mm256_storeu_ps(t, x)
#define LOADH(f) _mm_loadu_si128((const void *)(f))
#define STOREH(t, x) _mm_storeu_si128((void *)(t), x)
#define TOHALF(x) _mm256_cvtps_ph(x, ROUND)
#define FROMHALF(x) _mm256_cvtph_ps(x)
#include "tensor/vector_loops.h"

#else
typedef int cow__nothing_here;
#endif
