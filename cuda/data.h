/* SPDX-License-Identifier: MIT */
/*
 * Device data: what lazy clones of device storages share
 *
 *      storages --> allocation --> data --> range of addresses
 *                                    |      [ piece | piece | piece ]
 *                                    +--> streams that use it
 *
 * Data of the backings SINGLE and PIECES are pieces of physical memory (cuda/piece.h),
 * mapped in a range of addresses of their own. SINGLE has one piece. A piece may be mapped
 * in the ranges of several data: so a clone that was written shares the pieces that it did
 * not write. Data write a piece in place if they alone have it (refs == 1). The exception
 * is an `exposed` piece: a clone of it went to another process or came from one, and
 * nothing tells when that clone ends.
 *
 * A mapping must not change while work on the device may use it, and no call waits for the
 * device. So a write to shared data makes *new* data at new addresses. The old data are
 * *leaving*: they keep their maps and pieces until the marks of all streams that used them
 * have passed. The library looks for that each time that other data leave. So no other
 * work reads a piece that has one reference.
 *
 * Memory of a device's allocator (CACHED) has data, too. Those have no pieces, only the
 * streams.
 *
 * Order. Data belong to the stream that was current when they were made. Their uses have all
 * streams that copied them, and all that were current when they were cloned, or written as
 * clones. Before data that were cloned are written, the writer's stream waits for the
 * others, on the device.
 */
#ifndef COW_CUDA_DATA_H
#define COW_CUDA_DATA_H

#include "core/storage/storage.h"
#include "cuda/piece.h"
#include "cuda/uses.h"
#include "share/slot.h"

/* The stream of data whose stream has ended. It equals no other stream. */
#define COW__CUDA_NO_STREAM ((struct cow__cu_stream *)~(uintptr_t)0)

struct cow__cuda_data {
	struct cow__cuda_data *next, **before; /* in the list of those that live, or leave */
	struct cow__cuda *device;
	struct cow__mutex lock;     /* of the uses */
	struct cow__cuda_use *uses; /* its own stream is one of them */
	struct cow__cu_stream *stream;
	uint8_t backing;  /* enum cow_cuda_backing */
	bool alias;       /* other processes write it */
	bool captured;    /* a clone was made while a graph was recorded */
	/* Of an alias: its name (0: none yet), the scope in which the name is believed, and
	 * its one storage. */
	struct cow__id id, scope;
	struct cow_storage *storage;
	struct cow__cuda_block *block; /* CACHED: its block; NULL: memory of another allocator */
	/* All below are 0 for CACHED. */
	cow__cu_ptr at;
	size_t requested; /* bytes of its storage in the statistics; 0: it has none */
	size_t piece_bytes, count;
	struct cow__cuda_piece **pieces; /* `count`; one that is NULL was given to other data */
};

extern const struct cow__allocation_ops cow__cuda_data_ops;

/* New data on the stream, with room for `count` pieces of `piece_bytes`. No piece is mapped
 * yet. Entered. */
int cow__cuda_data_new(struct cow__cuda *d, struct cow__cu_stream *stream,
                       size_t piece_bytes, size_t count,
                       struct cow__cuda_data **ret);

/* Maps a piece as number `i`. Takes the reference over on success. */
int cow__cuda_data_map(struct cow__cuda_data *data, size_t i,
                       struct cow__cuda_piece *piece);

/* A new piece for data. May call the program's observers. */
int cow__cuda_data_piece(struct cow__cuda *d, size_t bytes,
                         struct cow__cuda_piece **ret);

/* Counts the data as those of a storage of so many bytes. */
void cow__cuda_data_serves(struct cow__cuda_data *data, size_t bytes);

/* Frees data that no allocation has, now or when no stream uses them. */
void cow__cuda_data_leave(struct cow__cuda_data *data);

/* A storage on data; takes the data over on success. */
int cow__cuda_data_storage(struct cow__cuda_data *data, size_t bytes,
                           struct cow_storage **ret);

/* Zeros the bytes behind the storage's end, because a piece is sent as a whole; with `zero`
 * the storage's bytes, too. */
int cow__cuda_data_clear(struct cow__cuda_data *data, size_t bytes, bool zero);

/* A fresh storage of pieces of `piece_bytes` (0: one for all of it) on the current stream. */
int cow__cuda_data_fresh(struct cow__cuda *d, size_t bytes, size_t piece_bytes,
                         bool zero, struct cow_storage **ret);

/* A storage of the backing PIECES. */
int cow__cuda_pieces_new(struct cow__cuda *d, size_t bytes,
                         const struct cow_cuda_options *o,
                         struct cow_storage **ret);

/* The data of a storage. NULL: the storage is not ours, or is CACHED and was never cloned. */
struct cow__cuda_data *cow__cuda_data_of(const struct cow_storage *s);

/* Notes that the stream uses the data, too. 0 or -ENOMEM. */
int cow__cuda_data_use(struct cow__cuda_data *data,
                       struct cow__cu_stream *stream);

/* The same for the stream that the data's block belongs to. If that has ended, the current
 * stream waits for its work. -EBUSY: the current stream records a graph, and can't wait. */
int cow__cuda_data_use_owner(struct cow__cuda_data *data,
                             const struct cow__cuda_block *b);

/* A stream ends: see cow__cuda_uses_end(). ENDED also makes the stream's data belong to no
 * stream. ENDING locks the lists, also if it fails. ENDED or STAYS must follow, and unlocks
 * them. So no data come or go meanwhile. Entered. */
int cow__cuda_data_stream_ends(struct cow__cuda *d, struct cow__cu_stream *stream,
                               enum cow__cuda_end how);

/* Frees the leaving data that no stream uses any more. True: there were any. Never waits.
 * Entered. */
bool cow__cuda_data_collect(struct cow__cuda *d);

/* Makes `stream` wait, on the device, for all streams that used the data. -EBUSY: it records
 * a graph, and can't wait. Entered. */
int cow__cuda_data_order(struct cow__cuda_data *data,
                         struct cow__cu_stream *stream);

/* Gives the data of an alias a name, by which its storage is found again. */
void cow__cuda_data_name(struct cow__cuda_data *data, const struct cow__id *id,
                         const struct cow__id *scope, struct cow_storage *s);

/* A reference to the storage of that name, or NULL. */
struct cow_storage *cow__cuda_data_named(const struct cow__id *id,
                                         const struct cow__id *scope);

/* adopt: gives memory of a device's allocator our operations (core/storage/allocation.h). get:
 * the data of such memory; makes them at the first clone. */
int cow__cuda_data_adopt(struct cow__allocation *a);
int cow__cuda_data_get(struct cow__allocation *a, struct cow__cuda_data **ret);

#endif
