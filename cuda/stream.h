/* SPDX-License-Identifier: MIT */
/*
 * Streams and marks
 *
 * A *mark* is a point in a stream's work: an event from the device's pool, recorded there.
 * Making an event costs more than recording it, so events are kept. A mark is the pointer
 * to its event; NULL is a mark that has passed.
 */
#ifndef COW_CUDA_STREAM_H
#define COW_CUDA_STREAM_H

#include "cuda/context.h"

/* The calling thread's current stream. Never fails; NULL is the legacy default stream. */
struct cow__cu_stream *cow__cuda_stream(const struct cow__cuda *d);

/* The stream is about to be destroyed, so the driver is asked nothing about it any more.
 * `ended` false: it stays after all. */
void cow__cuda_stream_ended(const struct cow__cuda *d, struct cow__cu_stream *stream,
                            bool ended);

/* The device must be entered for all of these. */

/* A mark behind all that is queued on the stream. */
int cow__cuda_mark(struct cow__cuda *d, struct cow__cu_stream *stream,
                   struct cow__cu_event **ret);

/* 1: passed; 0: not yet; -errno: the device failed. Never waits. */
int cow__cuda_passed(struct cow__cuda *d, struct cow__cu_event *mark);

/* The calling thread waits for the mark. */
int cow__cuda_await(struct cow__cuda *d, struct cow__cu_event *mark);

/* The stream waits for the mark, on the device. The mark may be another device's. */
int cow__cuda_after(struct cow__cuda *d, struct cow__cu_stream *stream,
                    struct cow__cu_event *mark);

/* Gives the mark's event back to the pool, passed or not. */
void cow__cuda_mark_free(struct cow__cuda *d, struct cow__cu_event *mark);

/* Does the stream record a graph? Asked before what a recording can't have: waiting, memory
 * from the driver. The default stream counts as recording while a stream that is ordered
 * with it records, because its use would break that recording. */
bool cow__cuda_capturing(struct cow__cuda *d, struct cow__cu_stream *stream);

/* May work be queued on the stream? -EBUSY, with advice: it is the default stream, and a
 * stream that is ordered with it records. For other streams always 0. */
int cow__cuda_usable(struct cow__cuda *d, struct cow__cu_stream *stream);

/* Does any known stream of the device record? Known are those that are current in a thread,
 * and those that are ordered with the default stream. To wait for the whole device would
 * break the recording. */
bool cow__cuda_recording(struct cow__cuda *d);

#endif
