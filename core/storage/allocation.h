/* SPDX-License-Identifier: MIT */
/*
 * Allocations: the data that lazy clones share
 *
 *      storage a ----\
 *      storage b -----> allocation (refs 3) ----> tile, small slot or foreign
 *      storage c ----/
 *
 * A storage's bytes hang on an allocation; a lazy clone is one more reference
 * to it. Whoever wants to write while there are others gets an allocation of
 * its own; the last one writes in place (it *steals*).
 *
 * Copying and stealing. A thread that materializes by copy first prepares
 * everything that can fail, then, under the engine's lock, announces itself as
 * a copier and gives up its reference, and then copies without the lock. The
 * thread that finds itself the last reference waits until there are no copiers
 * before it writes or frees. So the loser of a race never copies, and a copier
 * never reads what is being written.
 *
 * fork may happen while another thread copies; the child does not have that
 * thread. The list of copies under way lets it take them back.
 */
#ifndef COW_CORE_STORAGE_ALLOCATION_H
#define COW_CORE_STORAGE_ALLOCATION_H

#include "core/base/base.h"
#include "cowshed.h"

struct cow__tile;
struct cow_storage;

enum cow__allocation_kind {
	COW__AT_NOTHING, /* zero bytes */
	COW__AT_SMALL,   /* a slot of a slab */
	COW__AT_TILE,
	COW__AT_FOREIGN,  /* made by another allocator for us */
	COW__AT_EXTERNAL, /* given to us; others may write it */
	COW__AT_OTHER,    /* known by its operations alone */
};

struct cow__allocation;

/* Which bytes are about to be written, of how many that the storage has. */
struct cow__writing {
	size_t storage_bytes, offset, bytes;
	enum cow_write_hint hint;
};

/* What alone() found. */
enum cow__alone {
	COW__NOT_ALONE = 0,
	COW__ALONE = 1,       /* all of it may be written from now on, without asking */
	COW__ALONE_HERE = 2,  /* the bytes that were asked for may: ask again for others */
};

/*
 * What those who keep data elsewhere say of it: share/ of homes in memfds, cuda/ of
 * device memory, tensor/ of arrays of other libraries. Called without locks.
 * Allocations of the kind OTHER have all but those that may be NULL; memory of a
 * device's allocator (FOREIGN) may have them besides: then `view` may only say why
 * not, or -E2BIG, and `drop` leaves the data to the allocator.
 */
struct cow__allocation_ops {
	/* Of the only reference here: is it the only one anywhere? enum cow__alone,
	 * or -errno: it can't be known, and nothing was changed. */
	int (*alone)(struct cow__allocation *a, const struct cow__writing *w);
	/* Bytes of one's own, by sharing what is not written. -E2BIG: copy rather. */
	int (*view)(struct cow__allocation *a, const struct cow__writing *w,
	            struct cow__allocation **ret);
	/* The same of what others may be writing meanwhile. NULL: there is none. */
	int (*moment)(struct cow__allocation *a, struct cow__allocation **ret);
	void (*drop)(struct cow__allocation *a);
	/* A lazy clone is wanted. 0; 1: others write these bytes, copy them;
	 * -errno: there can be none. NULL: 0. */
	int (*cloned)(struct cow__allocation *a);
	/* The calling thread has read it, or queued reading it on a device; before
	 * it gives its reference up. 0 or -errno: then it keeps it. NULL: 0. */
	int (*copied)(struct cow__allocation *a);
	/* Corrects what cow_storage_get_info() tells. NULL: it is right. */
	void (*describe)(const struct cow__allocation *a,
	                 struct cow_storage_info *ret);
	/* Others may write these bytes unseen, as external ones, though nobody does
	 * here: what is to stay as it is must be copied. */
	bool unwatched;
};

struct cow__allocation {
	uint64_t refs;
	uint32_t copiers; /* futex; threads reading `data` for a copy */
	uint8_t kind;
	uint8_t owned; /* sole reference on pages nobody else reads: data_mut
	                  needs no lock. Set and cleared by the writer */
	uint8_t cloned; /* was lazy since it was last written: for statistics */
	bool fresh_zero; /* reads as zero, was never asked for writing */
	void *data;
	size_t bytes; /* usable */
	struct cow__tile *tile;
	struct cow_storage *storage; /* of an exposed tile */
	struct cow_data_ptr ptr;     /* foreign, external */
	struct cow_allocator *allocator; /* foreign */
	void *other;                     /* the operations' own */
	const struct cow__allocation_ops *ops;
};

enum cow__allocation_flags {
	COW__ALLOCATION_ZERO = 1 << 0,
	COW__ALLOCATION_STRICT = 1 << 1,
	COW__ALLOCATION_TILE = 1 << 2,  /* not small: its address is exposed */
	COW__ALLOCATION_WHOLE = 1 << 3, /* will be written at once */
	COW__ALLOCATION_ROOM = 1 << 4,  /* it may grow in place later */
};

/* How memory of a type of devices is set to zero; NULL: it can't be. Set once, before
 * its first allocator is registered. */
typedef int cow__zero_fn(struct cow_device device, void *data, size_t bytes);
extern cow__zero_fn *cow__zero[COW_DEVICE_TYPES];

/* From `allocator`, NULL: the engine. refs 1. */
int cow__allocation_new(size_t bytes, unsigned flags,
                        struct cow_allocator *allocator,
                        struct cow__allocation **ret);

/* On a live tile that its user may write; takes it over on success. Engine
 * locked. */
int cow__allocation_on_tile(struct cow__tile *tile,
                            struct cow__allocation **ret);

/* On a data pointer; takes it over on success. */
int cow__allocation_external(struct cow_data_ptr *ptr, size_t bytes,
                             struct cow__allocation **ret);

/* On data that is known by operations. The caller's `other` is the allocation's on
 * success. */
int cow__allocation_other(void *data, size_t bytes, void *other,
                          const struct cow__allocation_ops *ops,
                          struct cow__allocation **ret);

/* Asked for operations on memory that a device's allocator has made: sets `ops` and
 * `other`, or leaves it alone. 0 or -errno. By type of device. */
typedef int cow__adopt_fn(struct cow__allocation *a);
extern cow__adopt_fn *cow__allocation_adopt[COW_DEVICE_TYPES];

/* A reference to one that may be dying in another thread: false then. The caller
 * keeps it from being forgotten meanwhile (`drop` waits for its lock). */
bool cow__allocation_try_ref(struct cow__allocation *a);

/* Drops a reference; the last one waits for copiers and frees the data. */
void cow__allocation_unref(struct cow__allocation *a);

/* Ends an allocation whose data live on: its tile or slot is the caller's, as
 * raw memory of the default allocator; a foreign pointer was moved out. */
void cow__allocation_release(struct cow__allocation *a);

/* Waits until nobody copies from it. */
void cow__allocation_settle(struct cow__allocation *a);

/* A copy under way; on the copier's stack. */
struct cow__copying {
	struct cow__copying *next;
	struct cow__allocation *from, *to;
};

/* Begins one: gives up the caller's reference on `c->from`, whose data stay
 * readable until the end. False if it was the last: nothing changed then.
 * end: done with reading; *data becomes c->to, as a child that is forked sees it, too. */
bool cow__copying_begin(struct cow__copying *c);
void cow__copying_end(struct cow__copying *c, struct cow__allocation **data);

/* Copies [offset, offset + bytes) from one allocation to another, fresh one. */
int cow__allocation_copy(struct cow__allocation *to,
                         const struct cow__allocation *from, size_t offset,
                         size_t bytes);

/* See `copied` of its operations. */
static inline int
cow__allocation_copied(struct cow__allocation *a)
{
	return a->ops && a->ops->copied ? a->ops->copied(a) : 0;
}

/* In a forked child: takes back the copies of threads that it does not have.
 * Engine locked at the fork and here. */
void cow__allocations_child(void);

#endif
