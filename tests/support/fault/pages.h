/* SPDX-License-Identifier: MIT */
/*
 * Test support: a kernel of larger pages
 *
 * The programs tests/fault_*.c can play a machine whose pages are of 64 KiB, as arm64's may be.
 * The gate to the kernel (fault.c) then refuses addresses and offsets that are no multiple of
 * such a page, gives no others, and reports what was copied, or is there, in such pages.
 */
#ifndef COWSHED_TESTS_PAGES_H
#define COWSHED_TESTS_PAGES_H

#include <stddef.h>

/* Before the engine starts; with FAULT_PAGES=65536 in the environment the program is loaded so.
 * 65536 at most, a multiple of the kernel's own. */
void fault_pages(size_t bytes);

/* Calls that were refused for what is no boundary; runs that were reported as longer than the
 * kernel's own pages. */
unsigned long fault_pages_refused(void);
unsigned long fault_pages_widened(void);

/* The gate's own. */
typedef long (*fault_gate)(long nr, long a, long b, long c, long d, long e, long f);
long fault_pages_call(fault_gate gate, long nr, long a, long b, long c, long d, long e, long f);

#endif
