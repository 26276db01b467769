/* SPDX-License-Identifier: MIT */
/*
 * Homes: bytes that other processes may have, too
 *
 * A home is where a shared storage's bytes are in this process: an extent of a pack, or a
 * memfd of their own. Storages reach it through an allocation
 * (core/storage/allocation.h). A message that waits to be sent has a reference, too.
 *
 *   kind     memfd       written by                    clones
 *   alias    any         everybody, in place           eager copies
 *   packed   a pack      its only holder, in place     by reference
 *   sealed   of its own  nobody                        by reference
 *
 * A write to bytes that another holder has makes a private view (by page) or a copy, as
 * for any lazy storage.
 *
 * A table finds a home by its file, page and generation, so the same bytes received twice
 * are one home. Received twice, or back by its owner, an alias is the same storage. A clone
 * or a sealed one is another storage on the same bytes: the one that is written first leaves
 * them.
 */
#ifndef COW_SHARE_HOME_H
#define COW_SHARE_HOME_H

#include "core/storage/storage.h"
#include "share/pack.h"

enum cow__home_kind { COW__HOME_ALIAS, COW__HOME_PACKED, COW__HOME_SEALED };

struct cow__home {
	uint32_t refs; /* of allocations and messages; under cow__share_lock */
	uint8_t kind;
	bool exact;    /* its file has these bytes and no others */
	bool looked;   /* `exact` was found out by looking into the file */
	bool writable; /* its only holder may have a pointer for writing */
	/* It was writable at a fork: the mapping may differ from the file. */
	bool diverged;
	struct cow__home *next;   /* with the same hash */
	/* The diverged home of the same extent. This one shows what the file has, in a
	 * mapping of its own, and `under` holds the extent. */
	struct cow__home *under;
	struct cow__pack *pack;   /* NULL: a memfd of its own */
	struct cow__extent_at at;
	struct cow__descriptor file; /* the memfd, without a pack */
	uint64_t offset;          /* of the bytes in that memfd */
	uintptr_t mapping;        /* of this home alone; 0: within the pack's */
	size_t mapped;
	void *data;
	size_t bytes;
	/* Set by a user that keeps the mapping (a driver, which pinned it). Called when the
	 * last reference goes, with the lock held. True: the user owns the home, which has
	 * one reference and is in no table. */
	bool (*ends)(struct cow__home *h);
	bool hidden; /* in no table */
	struct cow__allocation *allocation; /* packed, sealed: if there is one */
	struct cow_storage *storage;        /* alias: if there is one */
};

/* What tells a home from all others of this process. */
struct cow__home_key {
	struct cow__pack *pack;
	struct cow__extent_at at;
	uint64_t dev, ino, offset;
	uint64_t file_bytes; /* not part of the key */
};

/* The caller of each of these holds cow__share_lock, unless the comment says otherwise. */

/* A new home with `bytes` of `from` (NULL: zeros). `group` NULL: a memfd of its
 * own. The one reference is the caller's. Takes the lock itself. */
int cow__home_new(struct cow_group *group, enum cow__home_kind kind,
                  const struct cow__allocation *from, size_t bytes,
                  struct cow__home **ret);

/* A home of the pages of a large transparent storage, or of a clone of one. The pages are
 * given away as they lie, if that is possible (core/cow/seal.h). -errno: it is not, copy
 * them. Takes the locks itself. */
int cow__home_give(struct cow_storage *s, struct cow__home **ret);

/* Makes a transparent storage on engine memory an alias at its address. Takes the locks
 * itself. */
int cow__home_share_in_place(struct cow_storage *s);

/* The home of a transparent storage that was shared in place (core/cow/alias.h). -ENOTSUP:
 * it was not. Takes the locks itself. */
int cow__home_common(struct cow_storage *s, struct cow__home **ret);

/* The transparent storage of this process that was shared in place, at this place of a file
 * that came: 1 and a reference, or 0. -errno: it has none, and could get none. The lock is not
 * held. */
int cow__home_alias_back(const struct cow__home_key *key, size_t bytes,
                         struct cow_storage **ret);

/* A reference to the home of bytes that were received. Takes `file` over on success if
 * it makes a home without a pack. The caller has checked the key, and holds the extent.
 * -EBADMSG: there is a home of another kind or size. */
int cow__home_open(enum cow__home_kind kind, const struct cow__home_key *key,
                   struct cow__descriptor *file, size_t bytes,
                   struct cow__home **ret);
struct cow__home *cow__home_find(const struct cow__home_key *key);

/* The place in the table where a key is looked for. There is a table once there was a home. */
size_t cow__home_place(const struct cow__home_key *key);

/* Where its bytes begin in its file. */
uint64_t cow__home_offset(const struct cow__home *h);

/* Gives the extent a new generation: messages from before no longer mean it. */
void cow__home_renew(struct cow__home *h);

void cow__home_unref(struct cow__home *h);

/* The home of a storage's bytes, or NULL. */
struct cow__home *cow__home_of(const struct cow_storage *s);

/* The home that a storage is a view of, if no page of the view was written, or NULL.
 * Needs no lock. */
struct cow__home *cow__home_shown(const struct cow_storage *s);

/* How other processes may have a storage's bytes, for cow_storage_get_info(). */
void cow__home_describe(const struct cow_storage *s, struct cow_storage_info *ret);

/* Has the file of a sealed home these bytes and no others? */
bool cow__home_exact(struct cow__home *h);

/* A storage on a home: of an alias the one that there is, else a new one. Takes the caller's
 * reference over on success. May let the lock go meanwhile. */
int cow__home_storage(struct cow__home *h, struct cow_storage **ret);

/* Moves a tracked storage's data to a home; takes the reference over on success. Takes the
 * lock itself. */
int cow__home_move_in(struct cow__home *h, struct cow_storage *s);

/* Copies what lies in a pack, for a child that can't map the file, and says how many bytes it
 * copied. 0 or -errno. */
int cow__homes_copy(struct cow__pack *p, size_t *ret_bytes);

/* Before a fork: marks what may differ from its file in the child. In the child: frees the
 * homes that a thread of the parent was filling. */
void cow__homes_fork(void);
void cow__homes_child(void);

#endif
