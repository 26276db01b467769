/* SPDX-License-Identifier: MIT */
/*
 * Device data: what lazy clones of device storages share
 *
 *      storages --> allocation --> data --> range of addresses
 *                                    |      [ piece | piece | piece ]
 *                                    +--> streams that use it
 *
 * Data of the backings SINGLE and PIECES are pieces of physical memory (cuda/piece.h)
 * that are seen in a range of addresses of their own; SINGLE has one. A piece may be
 * seen in the ranges of several data: that is how a clone that was written shares what
 * it did not write. A piece is written in place by the data that alone have it
 * (refs == 1), unless a clone of it went to or came from another process
 * (`exposed`): nobody can tell when that one ends.
 *
 * A mapping that work on the device may still use can't be changed, and nobody waits
 * for the device. So writing what is shared makes *new* data at new addresses, and the
 * old ones are *leaving*: they keep their maps and pieces until the marks of all
 * streams that used them have passed, which is looked for whenever something else
 * leaves. So a piece that has one reference is read by nobody else's work either.
 *
 * Memory of a device's allocator (CACHED) has data, too, without pieces: the streams
 * alone.
 *
 * Order. Data belong to the stream that was current when they were made. All streams
 * that copied them, or were current when they were cloned or written as clones, are
 * among their uses. Who writes what was cloned first makes his stream wait for the
 * others, on the device.
 */
#ifndef COW_CUDA_DATA_H
#define COW_CUDA_DATA_H

#include "core/storage/storage.h"
#include "cuda/piece.h"
#include "cuda/uses.h"
#include "share/group.h"

/* The stream of data whose stream ended: no other is it. */
#define COW__CUDA_NO_STREAM ((struct cow__cu_stream *)~(uintptr_t)0)

struct cow__cuda_data {
	struct cow__cuda_data *next, **before; /* all that live, or all that leave */
	struct cow__cuda *device;
	struct cow__mutex lock;     /* of the uses */
	struct cow__cuda_use *uses; /* the stream that it belongs to is one */
	struct cow__cu_stream *stream;
	uint8_t backing;  /* enum cow_cuda_backing */
	bool alias;       /* other processes write it */
	bool captured;    /* a clone was made while a graph was recorded */
	/* Of an alias: its name (0: none yet), from whom it may be believed, and the
	 * storage, which has it alone. */
	struct cow__id id, scope;
	struct cow_storage *storage;
	/* All below are 0 of CACHED. */
	struct cow__cuda_block *block; /* of CACHED alone, and NULL of others' memory */
	cow__cu_ptr at;
	size_t requested; /* bytes of its storage, as it is counted; 0: there is none */
	size_t piece_bytes, count;
	struct cow__cuda_piece **pieces; /* `count`; NULL: handed on */
};

extern const struct cow__allocation_ops cow__cuda_data_ops;

/* New data with `count` pieces of `piece_bytes`, of which `pieces` (NULL: none; a
 * reference each, the data's on success) are mapped. On the stream; entered. */
int cow__cuda_data_new(struct cow__cuda *d, struct cow__cu_stream *stream,
                       size_t piece_bytes, size_t count,
                       struct cow__cuda_data **ret);

/* Maps a piece at its place. Takes the reference over on success. */
int cow__cuda_data_map(struct cow__cuda_data *data, size_t i,
                       struct cow__cuda_piece *piece);

/* A piece of its own for data. May call the program's observers. */
int cow__cuda_data_piece(struct cow__cuda *d, size_t bytes,
                         struct cow__cuda_piece **ret);

/* It has a storage of so many bytes from now on. */
void cow__cuda_data_serves(struct cow__cuda_data *data, size_t bytes);

/* Lets go of what no allocation has. */
void cow__cuda_data_leave(struct cow__cuda_data *data);

/* A storage on data, which it takes over on success. */
int cow__cuda_data_storage(struct cow__cuda_data *data, size_t bytes,
                           struct cow_storage **ret);

/* Zeros behind the storage's last byte, which goes along when the piece is sent, and
 * (`zero`) before it, too. */
int cow__cuda_data_clear(struct cow__cuda_data *data, size_t bytes, bool zero);

/* A fresh storage of pieces (0: one for all of it) on the current stream. */
int cow__cuda_data_fresh(struct cow__cuda *d, size_t bytes, size_t piece_bytes,
                         bool zero, struct cow_storage **ret);

/* A storage of the backing PIECES. */
int cow__cuda_pieces_new(struct cow__cuda *d, size_t bytes,
                         const struct cow_cuda_options *o,
                         struct cow_storage **ret);

/* The data of a storage, or NULL: none of ours, or none yet (cached, never cloned). */
struct cow__cuda_data *cow__cuda_data_of(const struct cow_storage *s);

/* The stream uses it, too. 0 or -ENOMEM. */
int cow__cuda_data_use(struct cow__cuda_data *data,
                       struct cow__cu_stream *stream);

/* So does the stream that a block belongs to, whose memory it is. If it ended the current
 * stream waits for it, or says -EBUSY: it records. */
int cow__cuda_data_use_owner(struct cow__cuda_data *data,
                             const struct cow__cuda_block *b);

/* What becomes of the uses of a stream that ends (cuda/uses.h), and that what belonged to
 * it belongs to none. ENDING, which locks the lists also where it fails, is followed by one
 * of the others, which unlocks them: no data come or go meanwhile. Entered. */
int cow__cuda_data_stream_ends(struct cow__cuda *d, struct cow__cu_stream *stream,
                               enum cow__cuda_end how);

/* Unmaps what has left and is used by nobody any more. Whether there was any. Never
 * waits. Entered. */
bool cow__cuda_data_collect(struct cow__cuda *d);

/* Makes `stream` wait, on the device, for all that used it. -EBUSY: it records a
 * graph, which can't. Entered. */
int cow__cuda_data_order(struct cow__cuda_data *data,
                         struct cow__cu_stream *stream);

/* The data's alias storage is known by this name from now on. */
void cow__cuda_data_name(struct cow__cuda_data *data, const struct cow__id *id,
                         const struct cow__id *scope, struct cow_storage *s);

/* A reference to the storage of that name, or NULL. */
struct cow_storage *cow__cuda_data_named(const struct cow__id *id,
                                         const struct cow__id *scope);

/* Watches memory that a device's allocator makes (core/storage/allocation.h). It gets data
 * when it is first cloned. */
int cow__cuda_data_adopt(struct cow__allocation *a);
int cow__cuda_data_get(struct cow__allocation *a, struct cow__cuda_data **ret);

#endif
