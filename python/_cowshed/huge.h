/* SPDX-License-Identifier: MIT */
/*
 * Huge pages for frozen objects: see huge.c
 */
#ifndef COWSHED_HUGE_H
#define COWSHED_HUGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct huge_block;

/* How many objects lie in which blocks of 2 MiB. All zero at first. */
struct huge {
	struct huge_block *all, *last;
	size_t used, mask;
	bool failed; /* no memory: nothing is done */
};

/* Counts an object at this address. */
void huge_count(struct huge *h, uintptr_t at);

/* Asks the kernel for huge pages where many objects lie. It may refuse. */
void huge_collapse(const struct huge *h);

void huge_free(struct huge *h);

#endif
