/* SPDX-License-Identifier: MIT */
/*
 * Signals: tell another process when the memory that it received is ready
 *
 * When memory is sent, work on it may still be under way. So an interprocess event is sent,
 * too, and the receiver's stream waits for it on the device. The event must live until the
 * work is done: the sender keeps it, and frees it at a later send if it has passed. If a
 * receiver can't open an event, the work is done, or the sender has ended and its work
 * with it.
 */
#ifndef COW_CUDA_SIGNAL_H
#define COW_CUDA_SIGNAL_H

#include "cuda/context.h"
#include "share/wire.h"

/* Sets the event in `w`, behind all that is queued on the stream. Sets none if nothing is
 * queued. Waits for the stream if the device has no such events. Entered. */
int cow__cuda_signal(struct cow__cuda *d, struct cow__cu_stream *stream,
                     struct cow__wire_device *w);

/* Makes the stream wait for the event in `w`. Entered. */
int cow__cuda_await_signal(struct cow__cuda *d, struct cow__cu_stream *stream,
                           const struct cow__wire_device *w);

#endif
