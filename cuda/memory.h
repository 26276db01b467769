/* SPDX-License-Identifier: MIT */
/*
 * Device memory, for the other parts of cuda/
 *
 * A *block* is memory of one device that belongs to a stream. Most blocks are cut out of the
 * cache's segments (cuda/cache.h). Memory from elsewhere (one piece, many pieces, another
 * process's) becomes an *outside* block. Both kinds end when all streams that used them
 * have passed.
 */
#ifndef COW_CUDA_MEMORY_H
#define COW_CUDA_MEMORY_H

#include "core/storage/storage.h"
#include "cuda/context.h"

struct cow__cuda_block;
struct cow__cuda_piece;

/* Called once for each device, by cow_cuda_start(). */
int cow__cuda_memory_new(struct cow__cuda *d);

/* A block of `bytes` > 0 on `stream`. Entered, with no lock held: may call the program's
 * observers. -ENOMEM, after all steps of cuda/low.c; -EBUSY: the stream records a graph, and
 * no cached block fits. Both leave a sentence. */
int cow__cuda_take(struct cow__cuda *d, size_t bytes,
                   struct cow__cu_stream *stream, struct cow__cuda_block **ret);

/* The same if that needs no call of the driver, else NULL. Need not be entered. */
struct cow__cuda_block *cow__cuda_take_cached(struct cow__cuda *d, size_t bytes,
                                              struct cow__cu_stream *stream);

/* Frees the block. Any thread, in any context, also in a forked child. Never fails, never
 * waits. */
void cow__cuda_give(struct cow__cuda_block *block);

/* Notes that `stream` of the block's device (use_of: of the device `d`) uses it, too. 0 or
 * -ENOMEM. */
int cow__cuda_block_use(struct cow__cuda_block *block,
                        struct cow__cu_stream *stream);
int cow__cuda_block_use_of(struct cow__cuda_block *block, struct cow__cuda *d,
                           struct cow__cu_stream *stream);

/* The stream that the block belongs to. False: it has ended. */
bool cow__cuda_block_stream(const struct cow__cuda_block *block,
                            struct cow__cu_stream **ret);

/* If the block's stream has ended, makes `stream` wait for what was queued there. -EBUSY:
 * `stream` records a graph. Need not be entered. */
int cow__cuda_block_behind(const struct cow__cuda_block *block,
                           struct cow__cu_stream *stream);

/* The block of a storage's bytes; NULL: the memory is not ours. And the block that has an
 * address; the caller keeps it alive. */
struct cow__cuda_block *cow__cuda_block_of(const struct cow_storage *storage);
struct cow__cuda_block *cow__cuda_block_at(struct cow__cuda *d, cow__cu_ptr ptr);

/*
 * Makes a block of memory from elsewhere. When the block was freed and all streams have
 * passed, `done` is called: entered, with the device's memory lock held. It unmaps the
 * memory and drops its pieces. If it returns false, the driver refused, and it is called
 * again later. It is not called in a forked child.
 */
typedef bool cow__cuda_done_fn(void *user);
int cow__cuda_block_outside(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes,
                            size_t requested, struct cow__cu_stream *stream,
                            cow__cuda_done_fn *done, void *user,
                            struct cow__cuda_block **ret);

/*
 * Statistics of data (cuda/data.h) and their pieces, which are no blocks. piece: physical
 * memory that this process made; several data may share a piece. range: addresses, from
 * the first map to the last. storage: those of storages. `sign` is 1 or -1. The caller must
 * not hold the memory lock, except for `_locked`.
 */
void cow__cuda_count_piece(struct cow__cuda *d, size_t bytes, int sign);
void cow__cuda_count_range(struct cow__cuda *d, size_t bytes, int sign);
void cow__cuda_count_storage(struct cow__cuda *d, size_t bytes, size_t requested,
                             int sign);
void cow__cuda_count_piece_locked(struct cow__cuda *d, size_t bytes, int sign);

/* The piece of a block that is one piece, or NULL. */
struct cow__cuda_piece *cow__cuda_block_piece(const struct cow__cuda_block *block);

/* The deleter of data pointers on blocks; its context is the block. */
void cow__cuda_give_context(void *block);

/*
 * Calls `try_`, which needs memory of the driver, until its result is not -ENOMEM. Between
 * the calls more and more memory is given back (cuda/low.c). After the last failure the
 * sentence says how the device's memory is used. Entered, with no lock held.
 */
typedef int cow__cuda_try_fn(struct cow__cuda *d, void *arg);
int cow__cuda_low(struct cow__cuda *d, size_t bytes,
                  struct cow__cu_stream *stream, cow__cuda_try_fn *try_, void *arg);

/* How much of the device's memory this process may have. */
uint64_t cow__cuda_limit_bytes(const struct cow__cuda *d);

/* A device's allocator of cached memory, or (`single`) of single pieces. */
struct cow_allocator *cow__cuda_allocator(struct cow__cuda *d, bool single);

/* The number that this thread gave to cow_cuda_annotate(). */
uint64_t cow__cuda_user(void);

#endif
