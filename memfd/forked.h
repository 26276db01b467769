/* SPDX-License-Identifier: MIT */
/*
 * What every fork writes and runs
 *
 * After a fork the kernel copies a page when the parent or the child first writes to it. So
 * variables that each fork writes lie together, among the initialized data of a library. That
 * fills one page (scripts/lint-objects.sh looks at it).
 *
 * A child has no page tables for files. It meets a fault for each 64 KiB of code that it runs,
 * the kernel's fault_around_bytes. So what runs in every child lies together as well: the linker
 * puts hot functions side by side.
 */
#ifndef COW_MEMFD_FORKED_H
#define COW_MEMFD_FORKED_H

#define COW_FORK_DATA __attribute__((section(".data")))
#define COW_FORK_CODE __attribute__((hot))

#endif
