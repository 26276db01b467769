/* SPDX-License-Identifier: MIT */
/*
 * Test support: an allocator that counts, and that fails on demand
 *
 * A third party's device, made of malloc. It has all the parts of a
 * cow_allocator, the raw form too; a test may take some away again. Its device
 * is COW_DEVICE_PRIVATE with index 2, which nothing else here uses.
 */
#ifndef COWSHED_TESTS_COUNTING_H
#define COWSHED_TESTS_COUNTING_H

#include <cowshed.h>

struct counting {
	struct cow_allocator base;
	int allocations;
	int copies;
	int fail;      /* not 0: what allocate returns */
	int fail_copy; /* not 0: what copy_data returns */
};

void counting_make(struct counting *counting);

/* How many of its pointers, and those of every other one in this process, are
 * not disposed of yet. */
int counting_live(const struct counting *counting);

#endif
