/* SPDX-License-Identifier: MIT */
/*
 * Options of the engine: docs/options.md lists them.
 */
#ifndef COW_CORE_OPTIONS_H
#define COW_CORE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Key cuda-poison, for cuda/: core/ has no use for it. Atomic. */
extern bool cow__option_cuda_poison;

/* "64K", "2M", "1G", "4096": bytes. False if it is none of these. */
bool cow__parse_bytes(const char *s, uint64_t *ret);

#endif
