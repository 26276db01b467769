/* SPDX-License-Identifier: MIT */
/*
 * Growing arrays of metadata
 *
 * The memory of an array is a power of two, from 64 bytes on. Up to 32 KiB it
 * comes from pools. More is mapped.
 */
#ifndef COW_CORE_BASE_ARRAY_H
#define COW_CORE_BASE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* Makes room for `count` elements of `element` bytes, and keeps the elements that
 * are there. `array` and `cap` (in elements) change together, or neither changes:
 * -ENOMEM. */
int cow__array_reserve(void **array, uint32_t *cap, size_t element,
                       uint32_t count);
void cow__array_free(void *array, uint32_t cap, size_t element);

#endif
