/* SPDX-License-Identifier: MIT */
/*
 * Conversions with what every processor of the architecture has: SSE2, NEON
 */
#define TARGET
#define CHOOSE cow__vector_base
#include "tensor/vector_loops.h"
