/* SPDX-License-Identifier: MIT */
/*
 * Allocations: the data that lazy clones share
 *
 *      storage a ----\
 *      storage b -----> allocation (refs 3) ----> tile, small cell or foreign
 *      storage c ----/
 *
 * A storage's bytes hang on an allocation. A lazy clone is one more reference to
 * it. A storage that is about to be written while others share its allocation
 * gets an allocation of its own. The last one writes in place (it *steals*).
 *
 * Copying and stealing. A thread that materializes by copy works in this order:
 *
 *   1. It prepares everything that can fail.
 *   2. Under the engine's lock it announces itself as a copier and gives up its
 *      reference.
 *   3. It copies without the lock.
 *
 * The thread that finds itself with the last reference waits until there are no
 * copiers before it writes or frees. So the loser of a race never copies, and a
 * copier never reads what another thread writes.
 *
 * fork may happen while another thread copies, and the child does not have that
 * thread. With the list of copies under way the child takes them back.
 */
#ifndef COW_CORE_STORAGE_ALLOCATION_H
#define COW_CORE_STORAGE_ALLOCATION_H

#include "core/base/base.h"
#include "cowshed.h"

struct cow__tile;
struct cow_storage;

enum cow__allocation_kind {
	COW__AT_NOTHING, /* zero bytes */
	COW__AT_SMALL,   /* a cell of a slab */
	COW__AT_TILE,
	COW__AT_FOREIGN,  /* made by another allocator for the engine */
	COW__AT_EXTERNAL, /* given by the user, who may write it */
	COW__AT_OTHER,    /* known by its operations alone */
};

struct cow__allocation;

/* Which bytes of a storage are about to be written, and how many bytes it has. */
struct cow__writing {
	size_t storage_bytes, offset, bytes;
	enum cow_write_hint hint;
};

/* What alone() found out. */
enum cow__alone {
	COW__NOT_ALONE = 0,
	COW__ALONE = 1,       /* all of it may be written from now on */
	COW__ALONE_HERE = 2,  /* the bytes in question may be; ask again for others */
};

/*
 * Operations on data that lies outside of the engine: homes in memfds (share/),
 * device memory (cuda/), arrays of other libraries (tensor/). Called without
 * locks.
 *
 * Allocations of the kind OTHER have all operations but those that may be NULL.
 * Memory of a device's allocator (FOREIGN) may have operations besides. `view`
 * may only return why not then, or -E2BIG, and `drop` leaves the data to the
 * allocator.
 */
struct cow__allocation_ops {
	/* The caller has the only reference here: is it the only one anywhere?
	 * enum cow__alone, or -errno: that can't be known, and nothing was
	 * changed. */
	int (*alone)(struct cow__allocation *a, const struct cow__writing *w);
	/* Makes bytes of the caller's own, and shares what is not written.
	 * -E2BIG: a copy is better. */
	int (*view)(struct cow__allocation *a, const struct cow__writing *w,
	            struct cow__allocation **ret);
	/* The same for bytes that others may write meanwhile. NULL: it can't be
	 * done. */
	int (*moment)(struct cow__allocation *a, struct cow__allocation **ret);
	void (*drop)(struct cow__allocation *a);
	/* A lazy clone is wanted. 0: it may be made. 1: others write these bytes,
	 * copy them. -errno: there can be no clone. NULL: as 0. */
	int (*cloned)(struct cow__allocation *a);
	/* The calling thread has read the data, or queued reading it on a device.
	 * It is called before the thread gives its reference up. 0, or -errno: it
	 * keeps the reference. NULL: as 0. */
	int (*copied)(struct cow__allocation *a);
	/* Corrects what cow_storage_get_info() tells. NULL: nothing to
	 * correct. */
	void (*describe)(const struct cow__allocation *a,
	                 struct cow_storage_info *ret);
	/* The next run of bytes, from `at` on and before `end`, that may have memory:
	 * 1. 0: the rest reads as zero. -errno: that can't be known. NULL: the
	 * same. */
	int (*data)(const struct cow__allocation *a, size_t at, size_t end,
	            size_t *ret_start, size_t *ret_end);
	/* Others may write these bytes unseen, as those of external memory,
	 * though nobody does in this process. A clone of them must be a copy. */
	bool unwatched;
};

struct cow__allocation {
	uint64_t refs;
	uint32_t copiers; /* futex; threads reading `data` for a copy */
	uint8_t kind;
	uint8_t owned; /* sole reference on pages nobody else reads: data_mut
	                  needs no lock. The writer sets and clears it */
	uint8_t cloned; /* was cloned lazily since it was last written: for statistics */
	bool fresh_zero; /* reads as zero, and was never asked for writing */
	void *data;
	size_t bytes; /* usable */
	struct cow__tile *tile;
	struct cow_storage *storage; /* of an exposed tile */
	struct cow_data_ptr ptr;     /* foreign, external */
	struct cow_allocator *allocator; /* foreign */
	void *other;                     /* data of the operations */
	const struct cow__allocation_ops *ops;
};

enum cow__allocation_flags {
	COW__ALLOCATION_ZERO = 1 << 0,
	COW__ALLOCATION_STRICT = 1 << 1,
	COW__ALLOCATION_TILE = 1 << 2,  /* not small: its address is exposed */
	COW__ALLOCATION_WHOLE = 1 << 3, /* will be written at once */
	COW__ALLOCATION_ROOM = 1 << 4,  /* it may grow in place later */
	COW__ALLOCATION_APART = 1 << 5, /* it will be sent: in a file of its own */
};

/* How memory of a device type is set to zero; NULL: it can't be. It is set once,
 * before the first allocator of the type is registered. */
typedef int cow__zero_fn(struct cow_device device, void *data, size_t bytes);
extern cow__zero_fn *cow__zero[COW_DEVICE_TYPES];

/* Makes an allocation from `allocator`, or from the engine (NULL). refs is 1. */
int cow__allocation_new(size_t bytes, unsigned flags,
                        struct cow_allocator *allocator,
                        struct cow__allocation **ret);

/* Makes one on a live tile that its user may write. Takes the tile over on
 * success. Engine locked. */
int cow__allocation_on_tile(struct cow__tile *tile,
                            struct cow__allocation **ret);

/* Makes one on a data pointer. Takes it over on success. */
int cow__allocation_external(struct cow_data_ptr *ptr, size_t bytes,
                             struct cow__allocation **ret);

/* Makes one on data with operations. On success `other` belongs to the
 * allocation. */
int cow__allocation_other(void *data, size_t bytes, void *other,
                          const struct cow__allocation_ops *ops,
                          struct cow__allocation **ret);

/* Called for memory that a device's allocator has made, by type of device. It
 * sets `ops` and `other`, or leaves them alone. 0 or -errno. */
typedef int cow__adopt_fn(struct cow__allocation *a);
extern cow__adopt_fn *cow__allocation_adopt[COW_DEVICE_TYPES];

/* Takes a reference to an allocation that another thread may be freeing: false
 * then. The caller keeps it from being forgotten meanwhile (`drop` waits for the
 * caller's lock). */
bool cow__allocation_try_ref(struct cow__allocation *a);

/* Drops a reference. The last one waits for copiers and frees the data. */
void cow__allocation_unref(struct cow__allocation *a);

/* Ends an allocation whose data live on. The caller gets its tile or cell, as raw
 * memory of the default allocator. A foreign pointer was moved out before. */
void cow__allocation_release(struct cow__allocation *a);

/* Waits until nobody copies from it. */
void cow__allocation_settle(struct cow__allocation *a);

/* A copy under way; on the copier's stack. */
struct cow__copying {
	struct cow__copying *next;
	struct cow__allocation *from, *to;
};

/* begin: gives up the caller's reference on `c->from`, whose data stay readable
 * until the end. False: it was the last reference, and nothing changed. end:
 * reading is done. *data becomes c->to, and a child that is forked sees both
 * changes or neither. */
bool cow__copying_begin(struct cow__copying *c);
void cow__copying_end(struct cow__copying *c, struct cow__allocation **data);

/* What cow__allocation_readable() asks. */
int cow__allocation_probe(const struct cow__allocation *a, size_t offset,
                          size_t bytes);

/* Can the thread read [offset, offset + bytes)? 0, or -EFAULT: the program unmapped a part
 * of it or protected it. Memory that is not the engine's is not looked at. */
static inline int
cow__allocation_readable(const struct cow__allocation *a, size_t offset,
                         size_t bytes)
{
	return a->kind == COW__AT_TILE || a->kind == COW__AT_EXTERNAL
	               ? cow__allocation_probe(a, offset, bytes)
	               : 0;
}

/* Copies [offset, offset + bytes) from one allocation to the same place in
 * another, fresh one. What was never touched stays so. -EFAULT: as above. */
int cow__allocation_copy(struct cow__allocation *to,
                         const struct cow__allocation *from, size_t offset,
                         size_t bytes);

/* The next run of bytes that may have memory, as struct cow__allocation_ops says. Takes the
 * engine's lock. */
int cow__allocation_data(const struct cow__allocation *a, size_t at, size_t end,
                         size_t *ret_start, size_t *ret_end);

/* Copies the first `bytes` bytes to fresh memory of a file, which is mapped shared and has
 * no pages yet. The caller has asked whether they can be read. */
void cow__allocation_copy_out(char *to, const struct cow__allocation *from, size_t bytes);

/* Calls the operation `copied`, if there is one. */
static inline int
cow__allocation_copied(struct cow__allocation *a)
{
	return a->ops && a->ops->copied ? a->ops->copied(a) : 0;
}

/* In a forked child: takes back the copies of threads that the child does not
 * have. The engine is locked at the fork and here. */
void cow__allocations_child(void);

#endif
