/* SPDX-License-Identifier: MIT */
/*
 * Growing arrays of metadata
 *
 * Powers of two from 64 bytes on: small ones from pools, large ones mapped.
 */
#ifndef COW_CORE_BASE_ARRAY_H
#define COW_CORE_BASE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* Makes room for `count` elements of `element` bytes, keeping what is there.
 * `array` and `cap` (in elements) change together, or not at all: -ENOMEM. */
int cow__array_reserve(void **array, uint32_t *cap, size_t element,
                       uint32_t count);
void cow__array_free(void *array, uint32_t cap, size_t element);

#endif
