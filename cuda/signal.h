/* SPDX-License-Identifier: MIT */
/*
 * "Ready" for other processes
 *
 * What is sent may be work under way still. An interprocess event goes along, and the
 * receiver's stream waits for it on the device. The event must live until the work is
 * done: those that were sent are kept, and let go at a later send once they passed. So
 * who can't open one finds work that is done, or a sender that is gone, whose work is
 * gone with it.
 */
#ifndef COW_CUDA_SIGNAL_H
#define COW_CUDA_SIGNAL_H

#include "cuda/context.h"
#include "share/wire.h"

/* Behind all that is on the stream now. Nothing is queued there: sets nothing. Where
 * there are no such events: waits for the stream. Entered. */
int cow__cuda_signal(struct cow__cuda *d, struct cow__cu_stream *stream,
                     struct cow__wire_device *w);

/* The stream waits for it. Entered. */
int cow__cuda_await_signal(struct cow__cuda *d, struct cow__cu_stream *stream,
                           const struct cow__wire_device *w);

#endif
