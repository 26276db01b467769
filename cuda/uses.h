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
	struct cow__cu_event *mark;
	bool marked;
};

/* Once for each stream. -ENOMEM. */
int cow__cuda_uses_add(struct cow__cuda_use **list, struct cow__cuda *d,
                       struct cow__cu_stream *stream);

/* The stream is about to end: its uses get their marks now. */
int cow__cuda_uses_end(struct cow__cuda_use *list, struct cow__cuda *d,
                       struct cow__cu_stream *stream, struct cow__cuda *here);

/* Marks what is not, and forgets what has passed. 1: all has; 0: not yet, or can't be
 * known. Never waits. */
int cow__cuda_uses_passed(struct cow__cuda_use **list, struct cow__cuda *here);

/* In a forked child: forgets all, without the driver. */
void cow__cuda_uses_forget(struct cow__cuda_use **list);

#endif
