/* SPDX-License-Identifier: MIT */
/*
 * Mappings of the program that grew in parts (core/program/mapping.h)
 *
 * They lie in several tiles, and to the program they are one mapping. The kernel moves no more
 * than one of its own (mremap), so before a move one copy takes the place of all parts. Engine
 * locked.
 */
#ifndef COW_CORE_PROGRAM_GROWN_H
#define COW_CORE_PROGRAM_GROWN_H

#include <stdbool.h>
#include <stdint.h>

/* Is [addr, end) such a mapping, in more than one part, all of it the engine's? */
bool cow__is_grown(uintptr_t addr, uintptr_t end);

/* Replaces it. On an error all of it shows the same bytes as before. */
int cow__own_grown(uintptr_t addr, uintptr_t end);

#endif
