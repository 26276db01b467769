/* SPDX-License-Identifier: MIT */
/*
 * Which pages a private mapping has copied, which pages were touched
 */
#ifndef COW_MEMFD_PAGEMAP_H
#define COW_MEMFD_PAGEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__run {
	uintptr_t start, end;
};

/*
 * The runs of copied (anonymous) pages in a private file mapping, in order, at
 * most `max`. For a `max` of 1 the one run may end early, after a page: that is to ask
 * whether there is any. *ret_next is the
 * address up to which the answer is complete; call again from there while it is
 * below `end`. A page that swaps or migrates counts as copied, as it is. Returns the number of runs or -errno (-ENOENT:
 * no /proc). A page that another thread writes meanwhile may be missed.
 */
int cow__pagemap_copied(uintptr_t start, uintptr_t end, struct cow__run *runs,
                        int max, uintptr_t *ret_next);

/*
 * Of `count` ranges of `step` bytes from `addr` on: up to which one were they
 * touched since they were mapped (which shows in the page table entry of their
 * last page)? Up to `gap` ranges in a row that do not show it are passed over,
 * if a later one does. Number of ranges or -errno.
 */
int cow__pagemap_touched(uintptr_t addr, size_t step, size_t count, size_t gap);

/* Has this one page? 1, 0, -errno. */
int cow__pagemap_touched_page(uintptr_t addr);

/*
 * A thread that must open nothing (it may take the number that the program is about to
 * get) reads by a descriptor that another one opened: keep, again whenever it may have
 * been lost; then read_kept, in that thread; forget at its end, and in a forked child. Without the
 * descriptor its calls give -EBADF. The caller orders these.
 */
void cow__pagemap_keep(void);
void cow__pagemap_read_kept(void);
void cow__pagemap_forget(void);

/* For tests and the probe: 1 use PAGEMAP_SCAN if there (default), 0 never. */
void cow__pagemap_use_scan(bool yes);
bool cow__pagemap_has_scan(void);

#endif
