/* SPDX-License-Identifier: MIT */
/*
 * Who may still be using memory that was freed
 *
 * A *use* says: this stream of this device works, or worked, on the memory. While the
 * memory is live it is only a note. When the memory is freed it becomes a mark behind
 * all that the stream has to do, and when the marks of all uses have passed, the
 * memory is free. What can't be marked now (the stream records a graph, no event to
 * be had) is marked at a later look: later marks are right, too.
 *
 * A stream that ends can't be marked afterwards, so its uses get their marks before.
 * Whether it ends is known last of all, and if it does not there will be more work on
 * it: those marks are `marked` when it has ended, and are taken back when it stays.
 *
 * A list is its owner's, who serializes. The functions enter the devices that they
 * need; `here` (or NULL) is the one that is entered already.
 */
#ifndef COW_CUDA_USES_H
#define COW_CUDA_USES_H

#include "cuda/context.h"

struct cow__cuda_use {
	struct cow__cuda_use *next;
	struct cow__cuda *device;
	struct cow__cu_stream *stream;
	struct cow__cu_event *mark; /* not `marked`: the stream is just ending */
	bool marked;
};

/* Once for each stream. -ENOMEM. */
int cow__cuda_uses_add(struct cow__cuda_use **list, struct cow__cuda *d,
                       struct cow__cu_stream *stream);

enum cow__cuda_end {
	COW__CUDA_ENDING, /* it is about to: marks, which nobody takes for passed yet */
	COW__CUDA_ENDED,  /* they are for good */
	COW__CUDA_STAYS,  /* it did not: as if nothing had been */
};

/* What becomes of the stream's uses. `d` is entered. Only ENDING can fail, and STAYS
 * takes back what it did. */
int cow__cuda_uses_end(struct cow__cuda_use *list, struct cow__cuda *d,
                       struct cow__cu_stream *stream, enum cow__cuda_end how);

/* Marks what is not, and forgets what has passed. 1: all has; 0: not yet, or can't be
 * known. Never waits. */
int cow__cuda_uses_passed(struct cow__cuda_use **list, struct cow__cuda *here);

/* Marks behind which nobody waits any more go back to their pools. */
void cow__cuda_uses_drop(struct cow__cuda_use **list);

/* In a forked child: forgets all, without the driver. */
void cow__cuda_uses_forget(struct cow__cuda_use **list);

#endif
