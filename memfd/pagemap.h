/* SPDX-License-Identifier: MIT */
/*
 * Which pages a private mapping has copied, and which pages were touched
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
 * Finds the runs of copied (anonymous) pages in a private file mapping, in order,
 * at most `max`. *ret_next: the address up to which the answer is complete. Call
 * again from there while it is below `end`. With a `max` of 1 the one run may end
 * early, after a page: that is enough to ask whether there is any. A copied page
 * counts also while it is swapped out or migrates. A page that another thread
 * writes meanwhile may be missed. Returns the number of runs, or -errno (-ENOENT:
 * no /proc).
 */
int cow__pagemap_copied(uintptr_t start, uintptr_t end, struct cow__run *runs,
                        int max, uintptr_t *ret_next);

/* The same for anonymous memory: the pages that were written. Before PAGEMAP_SCAN those that
 * were only read count, too. */
int cow__pagemap_made(uintptr_t start, uintptr_t end, struct cow__run *runs, int max,
                      uintptr_t *ret_next);

/*
 * For watched memory (memfd/watch.h). mark: finds the copied pages, and marks them.
 * A write that ended before the call is in the page that the caller reads after it.
 * written: the copied pages that were written since they were marked, or that have
 * no mark. Both as cow__pagemap_copied(), but only with PAGEMAP_SCAN. -EPERM: there are
 * copied pages that nobody watches.
 */
int cow__pagemap_mark(uintptr_t start, uintptr_t end, struct cow__run *runs, int max,
                      uintptr_t *ret_next);
int cow__pagemap_written(uintptr_t start, uintptr_t end, struct cow__run *runs,
                         int max, uintptr_t *ret_next);

/*
 * How many of `count` ranges of `step` bytes from `addr` on were touched since
 * they were mapped? A touch shows in the page table entry of a range's last page.
 * Reading anonymous memory that was never written is no touch (with PAGEMAP_SCAN).
 * Up to `gap` ranges in a row that do not show it are passed over, if a later one
 * does. Returns the number of ranges up to the last one touched, or -errno.
 */
int cow__pagemap_touched(uintptr_t addr, size_t step, size_t count, size_t gap);

/* The same for one page: 1, 0, -errno. */
int cow__pagemap_touched_page(uintptr_t addr);

/*
 * Do the page tables of [start, end) have at least so many entries of present pages?
 * A huge page counts as 1/64 of its small ones: its one entry is taken down in about
 * that time. Looks at no more than it needs for the answer. 1, 0, or -errno
 * (-ENOTTY: this kernel can't tell it quickly).
 */
int cow__pagemap_has(uintptr_t start, uintptr_t end, size_t pages);

/*
 * For a thread that must open nothing, since it might take the number that the
 * program is about to get. It reads through a descriptor that another thread
 * opened. keep: opens it; call it again whenever the descriptor may have been
 * lost. read_kept: called in the reading thread. forget: at that thread's end,
 * and in a forked child. Without the descriptor the thread's calls return -EBADF.
 * The caller orders these calls.
 */
void cow__pagemap_keep(void);
void cow__pagemap_read_kept(void);
void cow__pagemap_forget(void);

/* For tests and the probe: 1 uses PAGEMAP_SCAN if it is there (default), 0
 * never. */
void cow__pagemap_use_scan(bool yes);
bool cow__pagemap_has_scan(void);

#endif
