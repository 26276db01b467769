/* SPDX-License-Identifier: MIT */
/*
 * Streams and marks
 *
 * A *mark* is a point in a stream's work: an event from the device's pool, recorded
 * there. Making an event costs more than recording it, so they are kept. Marks are
 * values of one pointer; NULL is a mark that was passed long ago.
 */
#ifndef COW_CUDA_STREAM_H
#define COW_CUDA_STREAM_H

#include "cuda/context.h"

/* The calling thread's current stream; never fails (NULL: the legacy default). */
struct cow__cu_stream *cow__cuda_stream(const struct cow__cuda *d);

/* About to be destroyed: nothing is asked of it any more. Or (`ended` false) it stays. */
void cow__cuda_stream_ended(const struct cow__cuda *d, struct cow__cu_stream *stream,
                            bool ended);

/* All of these want the device entered. */

/* A mark behind everything that is on the stream now. */
int cow__cuda_mark(struct cow__cuda *d, struct cow__cu_stream *stream,
                   struct cow__cu_event **ret);

/* 1: passed; 0: not yet; -errno: the device failed. Never waits. */
int cow__cuda_passed(struct cow__cuda *d, struct cow__cu_event *mark);

/* Waits on the host. */
int cow__cuda_await(struct cow__cuda *d, struct cow__cu_event *mark);

/* The stream waits, on the device. The mark may be another device's. */
int cow__cuda_after(struct cow__cuda *d, struct cow__cu_stream *stream,
                    struct cow__cu_event *mark);

/* The mark's event goes back to the pool, passed or not. */
void cow__cuda_mark_free(struct cow__cuda *d, struct cow__cu_event *mark);

/* Is the stream recording a graph? What a capture can't have (waiting, memory from
 * the driver) is asked for first. The default stream is when one that is ordered with
 * it does: using it would break that recording. */
bool cow__cuda_capturing(struct cow__cuda *d, struct cow__cu_stream *stream);

/* May work be queued there? -EBUSY, with advice: it is the default stream, while one that
 * is ordered with it records. Other streams are not asked. */
int cow__cuda_usable(struct cow__cuda *d, struct cow__cu_stream *stream);

/* Does any stream of the device that is known here? That is one that is current in some
 * thread, or ordered with the default one. Waiting for the whole device would break what
 * it records. */
bool cow__cuda_recording(struct cow__cuda *d);

#endif
