/* SPDX-License-Identifier: MIT */
/*
 * Storages of devices, as messages carry them
 *
 * A message has one descriptor and one struct cow__wire_device (share/wire.h) for each.
 * The device makes that descriptor, checks it and maps it: cuda/parcel.c sets the
 * operations below when a device is started.
 */
#ifndef COW_SHARE_PARCEL_H
#define COW_SHARE_PARCEL_H

#include "cowshed-share.h"
#include "share/wire.h"

struct cow__home;

/* Called without the share lock. */
struct cow__parcel_ops {
	/* Makes what is sent; the descriptor is the caller's. May move the storage's bytes,
	 * as cow_channel_send() says. `trusted`: a clone is sent with its own pages, which
	 * the peer could write; else the peer gets a copy. A storage of zero bytes has no
	 * descriptor: *ret_fd is not set. */
	int (*send)(struct cow_storage *s, enum cow_share_mode mode,
	            const struct cow__id *scope, bool trusted, int *ret_fd,
	            struct cow__wire_device *ret);
	/* Makes a storage of what came; the descriptor stays the caller's. `scope`: an alias
	 * with the same identity from the same scope is the same storage. Not `trusted`: a
	 * clone is copied, because its sender could go on writing it. A storage of zero bytes
	 * has no `fd`. -EBADMSG; -ENODEV: this process has no such device; -ENOMEM, -EMFILE:
	 * may be tried again. */
	int (*receive)(const struct cow__wire_device *w, uint64_t bytes,
	               enum cow_share_mode mode, const struct cow__id *scope,
	               bool trusted, int fd, struct cow_storage **ret);
	/* For pinned host memory that is about to be sent as an alias: moves the storage to a
	 * home that is pinned, too. *ret is a reference to it. -EOPNOTSUPP: the storage is not
	 * pinned memory. */
	int (*alias_pinned)(struct cow_storage *s, struct cow__home **ret);
	/* A storage of one piece as a descriptor by itself, and back. */
	int (*export)(struct cow_storage *s, enum cow_share_mode mode, int *ret_fd);
	int (*import)(int fd, uint64_t offset, uint64_t bytes,
	              enum cow_share_mode mode, struct cow_storage **ret);
};

/* NULL: no device was started yet. Set once. */
extern const struct cow__parcel_ops *cow__parcel_ops;

static inline const struct cow__parcel_ops *
cow__parcels(void)
{
	/* Pairs with the store in cuda/start.c. */
	return __atomic_load_n(&cow__parcel_ops, __ATOMIC_ACQUIRE);
}

/* Adds a device's storage to the message that is being made; makes a storage of what came
 * in one. `bytes` describe it; `fd` stays the caller's. */
int cow__parcel_add(struct cow_channel *c, const struct cow_parcel *p,
                    struct cow__wire_item *i);
int cow__parcel_open(struct cow_channel *c, const struct cow__wire_item *i, int fd,
                     const unsigned char *bytes, struct cow_storage **ret);

#endif
