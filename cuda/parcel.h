/* SPDX-License-Identifier: MIT */
/*
 * Device storages in messages: the operations for share/ (share/parcel.h)
 */
#ifndef COW_CUDA_PARCEL_H
#define COW_CUDA_PARCEL_H

#include "cuda/context.h"
#include "share/parcel.h"

/* See struct cow__parcel_ops. `scope` NULL: the storage gets no name. */
int cow__cuda_parcel_receive(const struct cow__wire_device *w, uint64_t bytes,
                             enum cow_share_mode mode,
                             const struct cow__id *scope, bool trusted, int fd,
                             struct cow_storage **ret);

/* A new storage in pieces of `piece_bytes` (0: one for all), with the bytes as they are at
 * this point of the stream. Entered. */
int cow__cuda_parcel_copy(struct cow_storage *s, struct cow__cuda *d,
                          size_t piece_bytes, struct cow_storage **ret);
int cow__cuda_parcel_import(int fd, uint64_t offset, uint64_t bytes,
                            enum cow_share_mode mode, struct cow_storage **ret);

/* Closes `n` descriptors of the library. */
void cow__cuda_close(const int *fds, unsigned n);

extern const struct cow__parcel_ops cow__cuda_parcel_ops;

#endif
