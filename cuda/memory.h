/* SPDX-License-Identifier: MIT */
/*
 * Device memory, for the other parts of cuda/
 *
 * A *block* is memory of one device that belongs to a stream. Most are cut out of the
 * cache's segments (cuda/cache.h); what is somebody else's (one piece, many pieces,
 * another process's) becomes an *outside* block, and gets the same care at its end:
 * it ends when all streams that used it have passed.
 */
#ifndef COW_CUDA_MEMORY_H
#define COW_CUDA_MEMORY_H

#include "core/storage/storage.h"
#include "cuda/context.h"

struct cow__cuda_block;
struct cow__cuda_piece;

/* Once for each device, in cow_cuda_start(). */
int cow__cuda_memory_new(struct cow__cuda *d);

/* `bytes` > 0 on `stream`. Entered, no lock held: may call the program's observers.
 * -ENOMEM after the whole ladder; -EBUSY: the stream records a graph, and nothing that
 * is cached fits. Each has its sentence. */
int cow__cuda_take(struct cow__cuda *d, size_t bytes,
                   struct cow__cu_stream *stream, struct cow__cuda_block **ret);

/* The same if it costs no call of the driver, else NULL. Need not be entered. */
struct cow__cuda_block *cow__cuda_take_cached(struct cow__cuda *d, size_t bytes,
                                              struct cow__cu_stream *stream);

/* Any thread, any context, also in a forked child. Never fails, never waits. */
void cow__cuda_give(struct cow__cuda_block *block);

/* `stream` of the block's device (of another device `d`) uses it, too. -ENOMEM. */
int cow__cuda_block_use(struct cow__cuda_block *block,
                        struct cow__cu_stream *stream);
int cow__cuda_block_use_of(struct cow__cuda_block *block, struct cow__cuda *d,
                           struct cow__cu_stream *stream);

/* The stream that it belongs to. False: that one ended, and any may have it. */
bool cow__cuda_block_stream(const struct cow__cuda_block *block,
                            struct cow__cu_stream **ret);

/* If that one ended: `stream` waits for what was queued there. -EBUSY: it records. Need
 * not be entered. */
int cow__cuda_block_behind(const struct cow__cuda_block *block,
                           struct cow__cu_stream *stream);

/* The block that the storage's bytes are in, or NULL: not ours. And the one that has
 * an address, which its caller keeps alive. */
struct cow__cuda_block *cow__cuda_block_of(const struct cow_storage *storage);
struct cow__cuda_block *cow__cuda_block_at(struct cow__cuda *d, cow__cu_ptr ptr);

/*
 * Memory that was made elsewhere, as a block. `done` is called when it was given back
 * and all streams have passed: entered, with the device's memory lock held; it unmaps,
 * and lets pieces go. False: the driver did not let it, try again later. Not called in a
 * forked child.
 */
typedef bool cow__cuda_done_fn(void *user);
int cow__cuda_block_outside(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes,
                            size_t requested, struct cow__cu_stream *stream,
                            cow__cuda_done_fn *done, void *user,
                            struct cow__cuda_block **ret);

/*
 * The statistics of what is no block: data (cuda/data.h) and their pieces, which several
 * may share. piece: physical memory that this process made; range: addresses, from the
 * first map to the last; storage: those in use. `sign` 1 or -1. Not with the memory lock
 * held, but for the last.
 */
void cow__cuda_count_piece(struct cow__cuda *d, size_t bytes, int sign);
void cow__cuda_count_range(struct cow__cuda *d, size_t bytes, int sign);
void cow__cuda_count_storage(struct cow__cuda *d, size_t bytes, size_t requested,
                             int sign);
void cow__cuda_count_piece_locked(struct cow__cuda *d, size_t bytes, int sign);

/* The piece that the block is all of, if it is one of its own, or NULL. */
struct cow__cuda_piece *cow__cuda_block_piece(const struct cow__cuda_block *block);

/* Of data pointers on blocks: the deleter, whose context is the block. */
void cow__cuda_give_context(void *block);

/*
 * Does what needs memory of the driver. `try_` is called until it gives something
 * other than -ENOMEM, with more and more given back in between; in the end the
 * sentence says who has how much. Entered, no lock held.
 */
typedef int cow__cuda_try_fn(struct cow__cuda *d, void *arg);
int cow__cuda_low(struct cow__cuda *d, size_t bytes,
                  struct cow__cu_stream *stream, cow__cuda_try_fn *try_, void *arg);

/* What this process may have of the device's memory. */
uint64_t cow__cuda_limit_bytes(const struct cow__cuda *d);

/* A device's allocators: of cached memory, and of single pieces. */
struct cow_allocator *cow__cuda_allocator(struct cow__cuda *d, bool single);

/* cow_cuda_annotate()'s, of this thread. */
uint64_t cow__cuda_user(void);

#endif
