/* SPDX-License-Identifier: MIT */
/*
 * Pieces: physical memory of a device, and addresses to see it at
 *
 *      piece   a handle of the driver's on physical memory, counted
 *      range   reserved addresses
 *      map     a piece seen at a place in a range, whole
 *
 * A piece lives until its last reference and its last map are gone. Every map is
 * known here: when a device begins to reach another one, it gets access to all that
 * the other one has (cow__cuda_maps_open()).
 *
 * All of these want the device entered, but for ref.
 */
#ifndef COW_CUDA_PIECE_H
#define COW_CUDA_PIECE_H

#include "cuda/context.h"

struct cow__cuda_piece {
	uint64_t refs; /* atomic */
	struct cow__cuda *device;
	cow__cu_handle handle;
	size_t bytes;
	bool imported; /* another process made it, which counts it */
	bool counted;  /* here, as data's: atomic (cow__cuda_count_piece()) */
	struct cow__cuda_piece *next; /* of those that the driver did not take back */
	/* A clone of it is, or was, elsewhere: never written in place (atomic). */
	bool exposed;
};

/* `bytes`: a multiple of the device's granule. -ENOMEM: after all that could be given
 * back was (cuda/low.c), with the sentence. May call the program's observers: not
 * with a lock held. */
int cow__cuda_piece_new(struct cow__cuda *d, size_t bytes,
                        struct cow__cuda_piece **ret);
/* The driver's answer, and no more. -ENOMEM also: beyond the fraction. */
int cow__cuda_piece_make(struct cow__cuda *d, size_t bytes,
                         struct cow__cuda_piece **ret);

struct cow__cuda_piece *cow__cuda_piece_ref(struct cow__cuda_piece *p);
/* Takes NULL. In a forked child the last one forgets it. Not with the memory lock held,
 * unless nobody counted it; or, `_locked`, with it. */
void cow__cuda_piece_unref(struct cow__cuda_piece *p);
void cow__cuda_piece_unref_locked(struct cow__cuda_piece *p);

/* Tries again to release what the driver did not take back. */
void cow__cuda_pieces_retry(struct cow__cuda *d);

/* `fd` stays the caller's. -EOPNOTSUPP: the device can't share. */
int cow__cuda_piece_import(struct cow__cuda *d, int fd, size_t bytes,
                           struct cow__cuda_piece **ret);
int cow__cuda_piece_export(struct cow__cuda_piece *p, int *ret_fd);

/* Addresses, aligned to the granule. */
int cow__cuda_range_new(struct cow__cuda *d, size_t bytes, cow__cu_ptr *ret);
void cow__cuda_range_free(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes);

/* With access for `d` and for those that reach it. Nothing changed on failure. */
int cow__cuda_range_map(struct cow__cuda *d, cow__cu_ptr ptr,
                        const struct cow__cuda_piece *piece, bool writable);
/* All maps in [ptr, ptr + bytes). Nobody uses them any more. 0, or what the driver
 * said: what could not be unmapped stays known, and can be tried again. */
int cow__cuda_range_unmap(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes);

/* `by` may reach `d` from now on: so may it reach all its maps, now and later. */
int cow__cuda_maps_open(const struct cow__cuda *d, const struct cow__cuda *by);

/* Physical memory that this process made on it. add: -ENOMEM beyond the fraction. */
uint64_t cow__cuda_made_bytes(const struct cow__cuda *d);
int cow__cuda_made_add(struct cow__cuda *d, size_t bytes);
void cow__cuda_made_sub(struct cow__cuda *d, size_t bytes);

#endif
