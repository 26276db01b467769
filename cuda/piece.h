/* SPDX-License-Identifier: MIT */
/*
 * Pieces: physical memory of a device, and the addresses at which it is mapped
 *
 *      piece   a handle of the driver on physical memory, with a reference count
 *      range   reserved addresses
 *      map     a whole piece, mapped at a place in a range
 *
 * A piece lives until its last reference and its last map are gone. piece.c knows every map:
 * when a device begins to reach another one, it gets access to all maps of that one
 * (cow__cuda_reach()).
 *
 * The device must be entered for all of these but cow__cuda_piece_ref().
 */
#ifndef COW_CUDA_PIECE_H
#define COW_CUDA_PIECE_H

#include "cuda/context.h"

struct cow__cuda_piece {
	uint64_t refs; /* atomic */
	struct cow__cuda *device;
	cow__cu_handle handle;
	size_t bytes;
	bool imported; /* another process made it, and counts it */
	bool counted;  /* by this process, as data's (cow__cuda_count_piece()); atomic */
	struct cow__cuda_piece *next; /* in the list of those that the driver kept */
	/* Another process has, or had, a clone of it: never written in place. Atomic. */
	bool exposed;
};

/* A piece of `bytes`, a multiple of the device's granule. -ENOMEM: even after all that can be
 * given back was (cuda/low.c); leaves a sentence. May call the program's observers, so the
 * caller must hold no lock. */
int cow__cuda_piece_new(struct cow__cuda *d, size_t bytes,
                        struct cow__cuda_piece **ret);
/* The same with one call of the driver, and nothing given back. -ENOMEM also: beyond the
 * fraction that the process may have. */
int cow__cuda_piece_make(struct cow__cuda *d, size_t bytes,
                         struct cow__cuda_piece **ret);

struct cow__cuda_piece *cow__cuda_piece_ref(struct cow__cuda_piece *p);
/* Drops a reference; takes NULL. In a forked child the last one only forgets the piece. The
 * caller must not hold the memory lock if the piece is counted; for `_locked` it must hold
 * the lock. */
void cow__cuda_piece_unref(struct cow__cuda_piece *p);
void cow__cuda_piece_unref_locked(struct cow__cuda_piece *p);

/* Tries again to release the pieces that the driver did not take back. */
void cow__cuda_pieces_retry(struct cow__cuda *d);

/* A piece from a descriptor, and back. The descriptors are the caller's. -EOPNOTSUPP: the
 * device can't share. */
int cow__cuda_piece_import(struct cow__cuda *d, int fd, size_t bytes,
                           struct cow__cuda_piece **ret);
int cow__cuda_piece_export(struct cow__cuda_piece *p, int *ret_fd);

/* Reserves addresses, aligned to the granule; frees them. */
int cow__cuda_range_new(struct cow__cuda *d, size_t bytes, cow__cu_ptr *ret);
void cow__cuda_range_free(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes);

/* Maps a piece, with access for `d` and for the devices that reach it. A failure changes
 * nothing. */
int cow__cuda_range_map(struct cow__cuda *d, cow__cu_ptr ptr,
                        const struct cow__cuda_piece *piece, bool writable);
/* Unmaps all maps in [ptr, ptr + bytes), which no work may use any more. 0, or the driver's
 * error: maps that stay are still known, and the call can be repeated. */
int cow__cuda_range_unmap(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes);

/* Lets `d` reach all memory of `peer` from then on. -EOPNOTSUPP: it can't. Entered. */
int cow__cuda_reach(struct cow__cuda *d, const struct cow__cuda *peer);

/* Bytes of physical memory that this process made on the device. add: -ENOMEM: beyond the
 * fraction. */
uint64_t cow__cuda_made_bytes(const struct cow__cuda *d);
int cow__cuda_made_add(struct cow__cuda *d, size_t bytes);
void cow__cuda_made_sub(struct cow__cuda *d, size_t bytes);

#endif
