/* SPDX-License-Identifier: MIT */
/*
 * Ranges that are one anonymous mapping to the program (core/program/mapping.h)
 *
 * They may lie in several tiles, as a mapping that grew, or have parts that the program emptied or
 * mapped anew. The kernel would have joined all that. It moves no more than one
 * of its own mappings (mremap), so before a move one copy takes the place of all parts. Engine
 * locked.
 */
#ifndef COW_CORE_PROGRAM_GROWN_H
#define COW_CORE_PROGRAM_GROWN_H

#include <stdbool.h>
#include <stdint.h>

/* Has the program noted the same of all of [addr, end), so that the kernel would keep it in one
 * mapping? All of it lies in tiles. */
bool cow__is_uniform(uintptr_t addr, uintptr_t end);

/* The number of parts of [addr, end) that are known to lie in different mappings. 0: it isn't one
 * anonymous mapping to the program, or others use its pages. */
unsigned cow__count_parts(uintptr_t addr, uintptr_t end);

/* One anonymous mapping takes the place of all parts. On an error all of it shows the same bytes
 * as before. What other threads write meanwhile may be lost. */
int cow__own_whole(uintptr_t addr, uintptr_t end);

#endif
