/* SPDX-License-Identifier: MIT */
/*
 * Uses: streams that may still work on memory that was freed
 *
 * A *use* says that a stream of a device works, or worked, on the memory. While the memory
 * is live the use is only a note. When the memory is freed, the use gets a mark behind all
 * that is queued on the stream. When the marks of all uses have passed, the memory is free.
 * If a use can't get its mark (the stream records a graph, there is no event), a later look
 * makes one. A later mark is right, too.
 *
 * A stream that has ended can't get marks, so its uses get them before. Whether the driver
 * ends the stream is known only after that. If it does, the marks count (`marked`). If it
 * does not, there will be more work on the stream, and the marks are taken back.
 *
 * The owner of a list serializes its use. The functions enter the devices that they need;
 * `here` is the device that the caller has entered, or NULL.
 */
#ifndef COW_CUDA_USES_H
#define COW_CUDA_USES_H

#include "cuda/context.h"

struct cow__cuda_use {
	struct cow__cuda_use *next;
	struct cow__cuda *device;
	struct cow__cu_stream *stream;
	struct cow__cu_event *mark; /* set, and not `marked`: the stream is about to end */
	bool marked;                /* the mark counts */
};

/* Adds a use, if the list has none of that stream. -ENOMEM. */
int cow__cuda_uses_add(struct cow__cuda_use **list, struct cow__cuda *d,
                       struct cow__cu_stream *stream);

enum cow__cuda_end {
	COW__CUDA_ENDING, /* it is about to end: its uses get marks, which do not count yet */
	COW__CUDA_ENDED,  /* it has ended: the marks count */
	COW__CUDA_STAYS,  /* it did not end: the marks are taken back */
};

/* Handles the uses of a stream that ends. `d` is entered. Only ENDING can fail; STAYS then
 * takes back what it did. */
int cow__cuda_uses_end(struct cow__cuda_use *list, struct cow__cuda *d,
                       struct cow__cu_stream *stream, enum cow__cuda_end how);

/* Marks the uses that have no mark, and removes those that have passed. 1: all have passed;
 * 0: not yet, or that can't be known. Never waits. */
int cow__cuda_uses_passed(struct cow__cuda_use **list, struct cow__cuda *here);

/* Frees all uses, and gives their marks back. */
void cow__cuda_uses_drop(struct cow__cuda_use **list);

/* Frees all uses without a call of the driver, as a forked child must. */
void cow__cuda_uses_forget(struct cow__cuda_use **list);

#endif
