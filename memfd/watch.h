/* SPDX-License-Identifier: MIT */
/*
 * Watched memory: which pages were written since a mark
 *
 * A userfaultfd makes the kernel keep that, page by page, without a word to anybody
 * (UFFD_FEATURE_WP_ASYNC, Linux 6.7). The first write to a marked page takes a fault
 * that clears the mark, in less than a microsecond. cow__pagemap_mark() makes the
 * marks, cow__pagemap_written() reads them.
 *
 * The program may close the descriptor, or take the memory away. Then the marks are
 * gone, and cow__pagemap_written() fails.
 */
#ifndef COW_MEMFD_WATCH_H
#define COW_MEMFD_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* As cow__pagemap_keep() and cow__pagemap_forget(): one thread opens the descriptor,
 * and another one, that must open nothing, uses it. The caller orders the calls. */
void cow__watch_keep(void);
void cow__watch_forget(void);

/* A new descriptor, which the caller closes. -errno: the kernel refuses it, or can't mark. */
int cow__watch_open(void);

/* Is there a descriptor, on a kernel that can watch? */
bool cow__watch_usable(void);

/* Watches a private mapping of a file, all of [start, end). It ends when the range is
 * mapped anew. 0 or -errno. */
int cow__watch(uintptr_t start, uintptr_t end);

/* false: not any more, as on an old kernel. For tests, and if the kernel refuses. */
void cow__watch_use(bool yes);

#endif
