/* SPDX-License-Identifier: MIT */
/*
 * What a storage is made of
 */
#ifndef COW_CORE_STORAGE_STORAGE_H
#define COW_CORE_STORAGE_STORAGE_H

#include "core/storage/allocation.h"

struct cow_storage {
	uint64_t refs;
	size_t bytes;
	struct cow__allocation *data;
	struct cow_allocator *allocator; /* of new bytes; NULL: the engine */
	const struct cow_element_hooks *elements;
	struct cow_device device;
	uint32_t flags;  /* enum cow_storage_flags */
	bool resizable;
	void *home; /* where share/ finds it again, or NULL */
};

/* Called for a storage with a home when its count has come to zero. */
extern void (*cow__storage_ended)(struct cow_storage *s);

/* A reference to a storage that may be dying in another thread: its count may be
 * zero, and then it must stay so. The caller keeps it in memory. */
bool cow__storage_try_ref(struct cow_storage *s);

/* A storage on an allocation, which it takes over on success. */
int cow__storage_on(struct cow__allocation *a, size_t bytes,
                    const struct cow_storage *like, struct cow_storage **ret);

/* Makes the storage the only one on its bytes. See cow_storage_data_mut_range()
 * for the arguments. */
int cow__materialize(struct cow_storage *s, size_t offset, size_t bytes,
                     enum cow_write_hint hint);

/* With COW_WRITE_ALL, for who may fail before all is written: *ret are the bytes that the
 * storage had in common with others until now, or NULL. The caller unrefs them, or brings
 * them back. */
int cow__materialize_keeping(struct cow_storage *s, size_t offset, size_t bytes,
                             struct cow__allocation **ret);
void cow__materialize_undo(struct cow_storage *s, struct cow__allocation *old);

/* Moves the bytes to memory of the engine's, whatever they are on. */
int cow__materialize_here(struct cow_storage *s);

/* Flags for a fresh allocation of this storage. */
unsigned cow__storage_allocation_flags(const struct cow_storage *s);

/* Destroys the storage's number of elements at `data`. */
void cow__elements_destroy(const struct cow_storage *s, void *data);

/* Fills in what cow_storage_get_info() tells. */
void cow__storage_describe(const struct cow_storage *s,
                           struct cow_storage_info *ret);

/* Does the MMU watch this storage's writes? */
static inline bool
cow__transparent(const struct cow_storage *s)
{
	return s->flags & COW_STORAGE_TRANSPARENT;
}

/* May others write its bytes without notice? Then its clones are copies. */
static inline bool
cow__unwatched(const struct cow_storage *s)
{
	const struct cow__allocation *a = s->data;

	return a->kind == COW__AT_EXTERNAL || (a->ops && a->ops->unwatched);
}

/* For who only reads: the storage itself, or another one on the same bytes where
 * writing would give the storage other ones. Nothing is copied. */
int cow__storage_beside(struct cow_storage *s, struct cow_storage **ret);

/*
 * A copy of `bytes` bytes from one storage to another. 1: of these, [*ret_first,
 * *ret_last), whole pages, are shared until either side is written, and the caller
 * copies the rest. 0: the destination's range may hold anything, the caller copies
 * all. Never an error: to copy is always right.
 */
int cow__storage_copy_lazily(struct cow_storage *to, size_t to_offset,
                             struct cow_storage *from, size_t from_offset,
                             size_t bytes, size_t *ret_first,
                             size_t *ret_last);

#endif
