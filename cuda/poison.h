/* SPDX-License-Identifier: MIT */
/*
 * Poison: who reads or changes host memory under a copy notices (cow_cuda_set_poison())
 */
#ifndef COW_CUDA_POISON_H
#define COW_CUDA_POISON_H

#include "cuda/context.h"

/* A mark with what its copy reads. */
struct cow__cuda_watch {
	struct cow__cu_event *mark;
	const void *host; /* NULL: nothing is watched */
	size_t bytes;
	uint64_t sum;
};

/* Of this thread: the next mark is behind a copy that reads so many bytes of the host. */
void cow__cuda_poison_reads(const void *host, size_t bytes);

/* A copy is about to be queued that fills them. What the stream still does with them is
 * waited for, since it comes first. Entered. */
int cow__cuda_poison_fills(struct cow__cuda *d, struct cow__cu_stream *stream,
                           void *host, size_t bytes);

/* The watch of this thread's last copy, for its mark, or none; NULL: no memory. */
struct cow__cuda_watch *cow__cuda_watch_new(struct cow__cu_event *mark);
void cow__cuda_watch_free(struct cow__cuda_watch *w);

/* -EILSEQ: the bytes were changed. Once, when the mark has passed. */
int cow__cuda_watch_check(struct cow__cuda_watch *w);

#endif
