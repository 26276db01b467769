/* SPDX-License-Identifier: MIT */
/*
 * Homes: bytes that other processes may have, too
 *
 * Where a shared storage's bytes live, in this process: an extent of a pack, or a
 * memfd of their own. Storages reach it through an allocation (core/storage/allocation.h);
 * messages that wait to be sent hold it besides.
 *
 *   kind     memfd       written by                    clones
 *   alias    any         everybody, in place           eager copies
 *   packed   a pack      its only holder, in place     by reference
 *   sealed   of its own  nobody                        by reference
 *
 * Writing what somebody else holds makes a private view (by page) or a copy, as
 * for any lazy storage.
 *
 * A home is found again by what it is - file, page and generation - so the same
 * bytes received twice are one home. An alias is one storage then, a clone is
 * another one on the same bytes.
 */
#ifndef COW_SHARE_HOME_H
#define COW_SHARE_HOME_H

#include "core/storage/storage.h"
#include "share/pack.h"

enum cow__home_kind { COW__HOME_ALIAS, COW__HOME_PACKED, COW__HOME_SEALED };

struct cow__home {
	uint32_t refs; /* allocations and messages; under cow__share_lock */
	uint8_t kind;
	bool exact;    /* its file has these bytes and no others ... */
	bool looked;   /* ... or has not: it was looked into */
	bool writable; /* its only holder may have a pointer for writing */
	/* ... and a fork came: the mapping is not what the file says. */
	bool diverged;
	struct cow__home *next;   /* with the same hash */
	/* What the file says, where a diverged home has the extent. */
	struct cow__home *under;
	struct cow__pack *pack;   /* NULL: a memfd of its own ... */
	struct cow__extent_at at;
	struct cow__descriptor file; /* ... this one */
	uint64_t offset;          /* of the bytes in that file */
	uintptr_t mapping;
	size_t mapped;
	void *data;
	size_t bytes;
	/* Somebody holds the mapping besides (a driver, which pinned it): asked when the
	 * last reference goes, with the lock held. True: it is his now, with one
	 * reference, and nobody finds it any more. */
	bool (*ends)(struct cow__home *h);
	bool hidden; /* in no table */
	struct cow__allocation *allocation; /* packed, sealed: if there is one */
	struct cow_storage *storage;        /* alias, sealed: if there is one */
};

/* What identifies a home among all of this process. */
struct cow__home_key {
	struct cow__pack *pack;
	struct cow__extent_at at;
	uint64_t dev, ino, offset;
	uint64_t file_bytes; /* not part of the key */
};

/* All of these want cow__share_lock, but for those that say otherwise. */

/* A new home with `bytes` of `from` (NULL: zeros). `group` NULL: a memfd of its
 * own. refs 1, the caller's. */
int cow__home_new(struct cow_group *group, enum cow__home_kind kind,
                  const void *from, size_t bytes, struct cow__home **ret);

/* Of the pages of a large transparent storage, or of a clone of one, as they lie, if
 * they can be given away (core/cow/seal.h). Takes the locks itself. -errno: no, copy. */
int cow__home_give(struct cow_storage *s, struct cow__home **ret);

/* Shares a transparent storage on engine memory in place. Takes the locks itself. */
int cow__home_share_in_place(struct cow_storage *s);

/* Of a transparent storage that was shared in place (core/cow/alias.h). -ENOTSUP: it was
 * not. Takes the locks itself. */
int cow__home_common(struct cow_storage *s, struct cow__home **ret);

/* Of what was received; refs 1 more. Takes `file` over on success, if there is no
 * pack. The caller has checked everything, and holds the extent. */
int cow__home_open(enum cow__home_kind kind, const struct cow__home_key *key,
                   struct cow__descriptor *file, size_t bytes,
                   struct cow__home **ret);
struct cow__home *cow__home_find(const struct cow__home_key *key);

/* Where its bytes begin in its file. */
uint64_t cow__home_offset(const struct cow__home *h);

/* Another generation: what a message from before meant is not this. */
void cow__home_renew(struct cow__home *h);

void cow__home_unref(struct cow__home *h);

/* The home of a storage's bytes, or NULL. */
struct cow__home *cow__home_of(const struct cow_storage *s);

/* The home that a storage is a view of, if none of its pages was written, or NULL.
 * Wants no lock. */
struct cow__home *cow__home_shown(const struct cow_storage *s);

/* Has the file of a sealed home these bytes and no others? */
bool cow__home_exact(struct cow__home *h);

/* A storage on a home: the one there is, or (`fresh`: a clone is nobody else's)
 * a new one. Takes the caller's reference over on success. */
int cow__home_storage(struct cow__home *h, bool fresh,
                      struct cow_storage **ret);

/* So that the same home gives the same storage again. */
void cow__home_remember(struct cow__home *h, struct cow_storage *s);

/* Moves a tracked storage's data to a home; takes the reference over. */
int cow__home_move_in(struct cow__home *h, struct cow_storage *s);

/* Of what lies in a pack, for a child that can't have the file. 0 or -errno. */
int cow__homes_copy(struct cow__pack *p);

/* Before a fork; and in the child, which lets go of what it lacks the thread to fill. */
void cow__homes_fork(void);
void cow__homes_child(void);

#endif
