/* SPDX-License-Identifier: MIT */
/*
 * Conversions with what every processor of this kind has: SSE2, NEON
 */
#define TARGET
#define CHOOSE cow__vector_base
#include "tensor/vector_loops.h"
