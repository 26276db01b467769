/* SPDX-License-Identifier: MIT */
/*
 * Test support: copies as the library for memcpy makes them
 */
#ifndef COWSHED_TESTS_COPIES_H
#define COWSHED_TESTS_COPIES_H

#include "core/cow/copy.h"
#include "core/memory/helper.h"
#include "tests/support/support.h"

#include <string.h>

enum { LARGE = 4 << 20, SITE = 0x1000 };

/* Without the helper, which may have a block in hand just when it is to become
 * a copy. One that is running ends first. */
static inline void mode(const char *name)
{
	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	cow__helper_suspend();
	cow__helper_resume();
	ck_assert_int_eq(cow_option_set("copies", name), 0);
}

static inline bool copy_from(void *to, const void *from, size_t bytes, uintptr_t site)
{
	bool watch;
	bool done = cow__copy_lazily(to, from, bytes, site, &watch);

	if (!done)
		memcpy(to, from, bytes);
	if (watch)
		cow__copy_done(to, from, bytes, site);
	return done;
}

static inline unsigned char *filled(size_t bytes, uint64_t seed)
{
	unsigned char *p = new_block(bytes, 0);

	fill(p, bytes, seed);
	return p;
}

#endif
