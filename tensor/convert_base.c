/* SPDX-License-Identifier: MIT */
/*
 * Conversions with what every processor of the architecture has: SSE2, NEON
 *
 * NEON converts float16, as long as FPCR has its usual value: it rounds as half.h does and keeps the
 * same payloads of NaN. SSE2 has no such instruction.
 */
#define TARGET
#define CHOOSE cow__vector_base
#if defined(__aarch64__)
#include <arm_neon.h>

#define WIDTH 8
#define LOADF(f) vld1q_f32_x2(f)
#define STOREF(t, x) vst1q_f32_x2(t, x)
#define LOADH(f) vld1q_u16(f)
#define STOREH(t, x) vst1q_u16(t, x)
#define TOHALF(x) to_half(x)
#define FROMHALF(x) from_half(x)

static inline uint16x8_t
to_half(float32x4x2_t x)
{
	float16x8_t h = vcombine_f16(vcvt_f16_f32(x.val[0]), vcvt_f16_f32(x.val[1]));

	return vreinterpretq_u16_f16(h);
}

static inline float32x4x2_t
from_half(uint16x8_t x)
{
	float16x8_t h = vreinterpretq_f16_u16(x);

	return (float32x4x2_t){ { vcvt_f32_f16(vget_low_f16(h)), vcvt_f32_f16(vget_high_f16(h)) } };
}
#endif
#include "tensor/vector_loops.h"
