/* SPDX-License-Identifier: MIT */
/*
 * Storages: their structure, and what the files of this folder share
 */
#ifndef COW_CORE_STORAGE_STORAGE_H
#define COW_CORE_STORAGE_STORAGE_H

#include "core/storage/allocation.h"

struct cow_storage {
	uint64_t refs;
	size_t bytes;
	struct cow__allocation *data;
	struct cow_allocator *allocator; /* for new bytes; NULL: the engine */
	const struct cow_element_hooks *elements;
	struct cow_device device;
	uint32_t flags;  /* enum cow_storage_flags */
	bool resizable;
	void *home; /* of share/, which finds the storage again by it; or NULL */
};

/* Called for a storage with a home, when its count has become zero. */
extern void (*cow__storage_ended)(struct cow_storage *s);

/* Sets `shared` in what cow_storage_get_info() tells, if other processes may have the bytes.
 * NULL: share/ is not in use. */
extern void (*cow__storage_shared)(const struct cow_storage *s, struct cow_storage_info *ret);

/* Can there be so many bytes of external memory? 0, or -EINVAL with its sentence. */
int cow__storage_external_ok(const struct cow_data_ptr *p, size_t bytes);

/* Takes a reference to a storage that another thread may be freeing: false if its
 * count is zero, which it stays then. The caller keeps the structure in memory
 * meanwhile. */
bool cow__storage_try_ref(struct cow_storage *s);

/* Makes a storage on an allocation. Takes the allocation over on success. */
int cow__storage_on(struct cow__allocation *a, size_t bytes,
                    const struct cow_storage *like, struct cow_storage **ret);

/* Makes the storage the only one on its bytes. See cow_storage_data_mut_range()
 * for the arguments. */
int cow__materialize(struct cow_storage *s, size_t offset, size_t bytes,
                     enum cow_write_hint hint);

/* With COW_WRITE_ALL, for a caller that may fail before all is written. *ret: the
 * bytes that the storage shared with others until now, or NULL. The caller unrefs
 * them, or puts them back with cow__materialize_undo(). */
int cow__materialize_keeping(struct cow_storage *s, size_t offset, size_t bytes,
                             struct cow__allocation **ret);
void cow__materialize_undo(struct cow_storage *s, struct cow__allocation *old);

/* Moves the bytes to memory of the engine, wherever they lie. */
int cow__materialize_here(struct cow_storage *s);

/* Flags for a new allocation of this storage. */
unsigned cow__storage_allocation_flags(const struct cow_storage *s);

/* Destroys as many elements at `data` as the storage has. */
void cow__elements_destroy(const struct cow_storage *s, void *data);

/* Fills in what cow_storage_get_info() returns. */
void cow__storage_describe(const struct cow_storage *s,
                           struct cow_storage_info *ret);

/* Does the MMU notice writes to this storage? */
static inline bool
cow__transparent(const struct cow_storage *s)
{
	return s->flags & COW_STORAGE_TRANSPARENT;
}

/* May others write its bytes unnoticed? Then its clones are copies. */
static inline bool
cow__unwatched(const struct cow_storage *s)
{
	const struct cow__allocation *a = s->data;

	return a->kind == COW__AT_EXTERNAL || (a->ops && a->ops->unwatched);
}

/* Are the pages of its tile given to other processes as they lie? Of a tracked storage only
 * if its maker wanted that: it moves to a home otherwise, where writing is cheaper. But a view
 * of other tiles' pages, which are frozen, gains nothing by moving. */
static inline bool
cow__storage_gives(const struct cow_storage *s, bool view)
{
	return cow__transparent(s) || (s->flags & COW_STORAGE_SHAREABLE) || view;
}

/* For a caller that only reads. *ret: the storage itself, or another storage on
 * the same bytes, if writing would give the storage other bytes. Nothing is
 * copied. */
int cow__storage_beside(struct cow_storage *s, struct cow_storage **ret);

/*
 * Copies `bytes` bytes from one storage to another lazily, as far as possible. 1:
 * the whole pages [*ret_first, *ret_last) of these bytes are shared until either
 * side is written, and the caller copies the rest. 0: the destination's range may
 * hold anything, and the caller copies all. Never an error, since a copy is
 * always right.
 */
int cow__storage_copy_lazily(struct cow_storage *to, size_t to_offset,
                             struct cow_storage *from, size_t from_offset,
                             size_t bytes, size_t *ret_first,
                             size_t *ret_last);

#endif
