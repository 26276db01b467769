/* SPDX-License-Identifier: MIT */
/*
 * Poison: finds reads and writes of host memory while a copy uses it (cow_cuda_set_poison())
 */
#ifndef COW_CUDA_POISON_H
#define COW_CUDA_POISON_H

#include "cuda/context.h"

/* A mark, and the host memory that its copy reads. */
struct cow__cuda_watch {
	struct cow__cu_event *mark;
	const void *host; /* NULL: nothing is watched */
	size_t bytes;
	uint64_t sum;
};

/* Notes for this thread that its next mark is behind a copy that reads these bytes. */
void cow__cuda_poison_reads(const void *host, size_t bytes);

/* Poisons the bytes that the next copy of the stream fills. Waits for the stream first,
 * because its earlier work may use them. Entered. */
int cow__cuda_poison_fills(struct cow__cuda *d, struct cow__cu_stream *stream,
                           void *host, size_t bytes);

/* The watch for the mark of this thread's last copy; without poison it watches nothing. NULL:
 * no memory. */
struct cow__cuda_watch *cow__cuda_watch_new(struct cow__cu_event *mark);
void cow__cuda_watch_free(struct cow__cuda_watch *w);

/* To be called once, when the mark has passed. -EILSEQ: the bytes were changed. */
int cow__cuda_watch_check(struct cow__cuda_watch *w);

#endif
