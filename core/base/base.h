/* SPDX-License-Identifier: MIT */
/*
 * Small things that every file of the engine needs
 */
#ifndef COW_CORE_BASE_BASE_H
#define COW_CORE_BASE_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "memfd/export.h"
#include "memfd/page.h"

#define cow__likely(x) __builtin_expect(!!(x), 1)
#define cow__unlikely(x) __builtin_expect(!!(x), 0)

/* Checks an invariant of the engine. Where it does not hold the process ends (a
 * trap): going on would corrupt data. */
#define cow__require(x)                                                        \
	do {                                                                   \
		if (cow__unlikely(!(x)))                                       \
			__builtin_trap();                                      \
	} while (0)

/* Is a mechanism left out of this build? `make WITHOUT=NAME` sets COW_WITHOUT_NAME to 1, so that
 * bench/ablate.sh can measure what the mechanism brings. */
#define cow__without(name) COW__WITHOUT_1(COW_WITHOUT_##name)
#define COW__WITHOUT_1(value) COW__WITHOUT_2(value)
#define COW__WITHOUT_2(value) COW__WITHOUT_3(COW__WITHOUT_IS_##value)
#define COW__WITHOUT_3(junk) COW__WITHOUT_4(junk true, false, ) /* `junk` may hold a comma now */
#define COW__WITHOUT_4(first, second, ...) second
#define COW__WITHOUT_IS_1 ,

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static inline size_t
cow__min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t
cow__max(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Rounds up to a multiple of `to`, a power of two. */
static inline size_t
cow__round_up(size_t n, size_t to)
{
	return (n + to - 1) & ~(to - 1);
}

static inline size_t
cow__round_down(size_t n, size_t to)
{
	return n & ~(to - 1);
}

#endif
