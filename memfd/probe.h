/* SPDX-License-Identifier: MIT */
/*
 * What this kernel offers, found out by trying
 *
 * A kernel's version says little: features are configured out, forbidden by
 * seccomp, or emulated in part. Each probe does the thing once, on memory of its
 * own.
 */
#ifndef COW_MEMFD_PROBE_H
#define COW_MEMFD_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#define COW__PR_GET_MEMORY_MERGE 68 /* Linux 6.4 */

bool cow__probe_memfd(void);    /* memfd_create, GROW and SHRINK seals, holes */
bool cow__probe_locks(void);    /* OFD locks on a memfd reopened in /proc */
bool cow__probe_collapse(void); /* a huge page in a memfd, on request */
bool cow__probe_pagemap(void);
bool cow__probe_pagemap_scan(void);
bool cow__probe_threads(void); /* /proc/self/task/TID/syscall */
bool cow__probe_unshare(void); /* unshare(CLONE_VM) as a question */
bool cow__probe_io_uring(void);
bool cow__probe_userfaultfd(void);

/*
 * Do memfds cost a program more than libc's memory does? True if they have small
 * pages alone, and their page tables can't be moved out of the way (Linux before
 * 5.13). Filling them takes longer then, and so does the first freeze.
 */
bool cow__probe_slow_memfds(void);

/* vm.max_map_count, or its usual value. */
size_t cow__probe_mappings_max(void);

/* Does the kernel keep memory for all that it grants (vm.overcommit_memory 2)? It
 * refuses single pages of a memfd then, when they are touched. */
bool cow__probe_charges(void);

/* Does the kernel look for equal pages of this process (PR_SET_MEMORY_MERGE), perhaps by a wish of
 * the process that started it? */
bool cow__probe_merged(void);

#endif
