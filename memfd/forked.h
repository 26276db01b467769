/* SPDX-License-Identifier: MIT */
/*
 * What every fork writes and runs
 *
 * After a fork the kernel copies a page when the parent or the child first writes to it. A fault
 * with its copy takes about as long as copying the page tables of 100 KiB. So variables that
 * each fork writes lie together, among the initialized data of a library, which fill one page.
 *
 * A child has no page tables for files: it meets a fault for each 64 KiB of code that it runs.
 * So what runs in every child lies together as well: the linker puts hot functions side by side.
 */
#ifndef COW_MEMFD_FORKED_H
#define COW_MEMFD_FORKED_H

#define COW_WRITTEN_BY_FORKS __attribute__((section(".data")))
#define COW_RUN_BY_FORKS __attribute__((hot))

#endif
