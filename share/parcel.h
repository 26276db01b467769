/* SPDX-License-Identifier: MIT */
/*
 * Storages of devices, as messages carry them
 *
 * What a descriptor of a device's memory is, how it is checked and mapped, is the
 * device's matter: cuda/parcel.c enters itself here when it is started. Messages know
 * a descriptor and a struct cow__wire_device (share/wire.h) for each.
 */
#ifndef COW_SHARE_PARCEL_H
#define COW_SHARE_PARCEL_H

#include "cowshed-share.h"
#include "share/wire.h"

struct cow__home;

/* Called without the share lock. */
struct cow__parcel_ops {
	/* What to send; the descriptor is the caller's. May move the storage's bytes,
	 * as cow_channel_send() says.
	 * `trusted`: the peer may have a clone's own pages, which nothing keeps it from
	 * writing; else it gets a copy. Zero bytes have no descriptor: it is not set. */
	int (*send)(struct cow_storage *s, enum cow_share_mode mode,
	            const struct cow__id *scope, bool trusted, int *ret_fd,
	            struct cow__wire_device *ret);
	/* What came; the descriptor stays the caller's. `scope`: an alias with the same
	 * identity from the same scope is the same storage. -EBADMSG; -ENODEV: no such
	 * device here; -ENOMEM, -EMFILE: may be tried again. Not `trusted`: of a clone,
	 * which its sender could go on writing, a copy is made. Zero bytes: `fd` is none. */
	int (*receive)(const struct cow__wire_device *w, uint64_t bytes,
	               enum cow_share_mode mode, const struct cow__id *scope,
	               bool trusted, int fd, struct cow_storage **ret);
	/* Pinned host memory, which is about to be sent as an alias: a home for it that is
	 * pinned, too, where the storage lives from now on, and a reference to that.
	 * -EOPNOTSUPP: it is not. */
	int (*alias_pinned)(struct cow_storage *s, struct cow__home **ret);
	/* Of one piece, by itself. */
	int (*export)(struct cow_storage *s, enum cow_share_mode mode, int *ret_fd);
	int (*import)(int fd, uint64_t offset, uint64_t bytes,
	              enum cow_share_mode mode, struct cow_storage **ret);
};

/* NULL: no device was started. Set once. */
extern const struct cow__parcel_ops *cow__parcel_ops;

static inline const struct cow__parcel_ops *
cow__parcels(void)
{
	/* Pairs with the store in cuda/start.c. */
	return __atomic_load_n(&cow__parcel_ops, __ATOMIC_ACQUIRE);
}

#endif
