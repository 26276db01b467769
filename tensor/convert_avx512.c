/* SPDX-License-Identifier: MIT */
/*
 * Conversions with AVX-512
 *
 * Its instruction for bfloat16 is not used, because that treats subnormals as zero.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#define FEATURES "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c"
#if defined(__clang__)
#define TARGET __attribute__((target(FEATURES), min_vector_width(512)))
#else
#define TARGET __attribute__((target(FEATURES ",prefer-vector-width=512")))
#endif
#define CHOOSE cow__vector_avx512
#define WIDTH 16
#define ROUND (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define LOADF(f) _mm512_loadu_ps(f)
#define STOREF(t, x) _mm512_storeu_ps(t, x)
#define LOADH(f) _mm256_loadu_si256((const void *)(f))
#define STOREH(t, x) _mm256_storeu_si256((void *)(t), x)
#define TOHALF(x) _mm512_cvtps_ph(x, ROUND)
#define FROMHALF(x) _mm512_cvtph_ps(x)
#include "tensor/vector_loops.h"

#else
typedef int cow__nothing_here;
#endif
