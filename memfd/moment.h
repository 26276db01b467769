/* SPDX-License-Identifier: MIT */
/*
 * The bytes of one moment, while other threads go on writing
 *
 *   process --clone--> child: sleeps; its private memory is what the process's was then
 *      |                  |
 *      | writes on        |
 *      v                  v
 *   cow__moment_read() <- the bytes of the moment
 *
 * A fork is the one instant that the kernel itself makes for all private memory: it holds the lock of
 * the address space, so every store is either before it or after it, whichever thread or virtual
 * processor made it. So the child is a fork in the kernel's sense alone. It runs no code but the
 * copies, no handlers of forks, and no signal handlers; it shares the table of descriptors, so none
 * stays open by it; and it sends no signal when it ends, so wait() does not find it. If the process is
 * killed, the child ends within 0.1 seconds; if it executes a program, within some seconds.
 *
 * Memory that is mapped shared, or that children don't inherit (MADV_DONTFORK), is not held. The
 * caller maps it private before, and lets children inherit it.
 */
#ifndef COW_MEMFD_MOMENT_H
#define COW_MEMFD_MOMENT_H

#include "memfd/pagemap.h"

struct cow__moment {
	struct cow__moment_desk *desk; /* what the two have in common */
	long pid;                      /* 0: it has ended */
	bool asks; /* the kernel does not let the process read the child's memory */
};

/* Makes the child. Costs what a fork costs: page tables of private memory are copied. All signals
 * should be blocked, since the child has the handlers of the process. The caller alone uses *ret.
 * -EAGAIN, -ENOMEM: there can be no child. */
int cow__moment_begin(struct cow__moment *ret);

/* Copies runs as they were at that moment, each to its own address and `delta` bytes more; or, with
 * `to`, one behind the other from there on. Another process's memory is read by
 * process_vm_readv(); if the kernel forbids that, the child copies the bytes into a buffer. -EAGAIN:
 * the child was killed, or had no such memory. Any part may be copied then. */
int cow__moment_read(struct cow__moment *m, const struct cow__run *runs, uint32_t n, char *to,
                     uintptr_t delta);

/* Tells the child to end: nobody reads there any more. -EAGAIN: it had ended before, so nothing of
 * what was read counts. */
int cow__moment_end(struct cow__moment *m);

/* Has it ended? It needs a processor for that, so `wait` may take some ms. Then nothing is left of
 * it, and m->desk is NULL. In a forked child it has ended, since it is no child of that. */
bool cow__moment_reap(struct cow__moment *m, bool wait);

#endif
