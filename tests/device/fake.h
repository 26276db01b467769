/* SPDX-License-Identifier: MIT */
/*
 * A device of a third party
 *
 * It knows the installed headers and nothing else, as anybody's device would. Its
 * memory can't be reached directly: an address of it is one of a mapping without
 * access, and the bytes, each inverted, lie elsewhere. Whoever takes it for host
 * memory crashes.
 *
 * There are two of them, index 0 and 1, of type COW_DEVICE_PRIVATE.
 */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include <cowshed-tensor.h>

/* How much it does itself. */
enum fake_skill {
	FAKE_BYTES,   /* moves bytes from and to the host, and no more */
	FAKE_WITHIN,  /* and within itself */
	FAKE_STRIDED, /* and strided copies of one type */
};

void fake_device_start(enum fake_skill skill);
void fake_device_stop(void);

/* From now on: copies that may be left unfinished are done when somebody waits for
 * them, or by the next copy that may not. */
void fake_device_late(void);

/* The allocator of the one or the other. */
struct cow_allocator *fake_device_memory(int index);

struct fake_device_counts {
	unsigned long from_host, to_host, within, strided;
	unsigned long refused;   /* strided copies that it left to others */
	unsigned long astray;    /* addresses that are not its own */
	unsigned long live;      /* allocations */
	unsigned long marks;     /* that were not freed */
	unsigned long awaits;
	unsigned long fail_next; /* the next call but so many fails with -EIO */
};
extern struct fake_device_counts fake_device_counts;

#endif
