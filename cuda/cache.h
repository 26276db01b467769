/* SPDX-License-Identifier: MIT */
/*
 * The cache of device memory: the interface between its files
 *
 *   pool (stream, small or large)
 *     segment: reserved addresses, or one cuMemAlloc
 *       | used | free | used | waiting | free |  hole  | free | hole ........ |
 *         blocks, by address                    nothing mapped
 *
 *   cache.c          takes and gives blocks
 *   cache_bins.c     free blocks by size; splits and merges blocks
 *   cache_segment.c  makes segments, maps memory into holes
 *   cache_return.c   gives free memory back to the driver
 *   cache_stream.c   pools and blocks of streams that end
 *   cache_stats.c    statistics, snapshot
 *   cache_trace.c    history
 *   low.c            what happens when the device has no more memory
 *
 * Free neighbours are always merged, and so are holes. The pool's stream can use a free
 * block at once: the block was freed in that stream's order, and all other streams that
 * used it have passed.
 *
 * The device's memory lock guards all of it.
 */
#ifndef COW_CUDA_CACHE_H
#define COW_CUDA_CACHE_H

#include "core/base/base.h"
#include "core/base/tree.h"
#include "cuda/memory.h"
#include "cuda/piece.h"
#include "cuda/stream.h"
#include "cuda/uses.h"

#define COW__CUDA_UNIT ((size_t)512)    /* sizes are multiples of it */
#define COW__CUDA_SMALL MIB             /* the largest of the small requests */
#define COW__CUDA_SMALL_SEGMENT (2 * MIB)
#define COW__CUDA_LARGE_SEGMENT (20 * MIB)
#define COW__CUDA_LARGE_ALONE (10 * MIB) /* a request from here on has its own segment */

enum cow__cuda_state {
	COW__CUDA_FREE,
	COW__CUDA_USED,
	COW__CUDA_WAITING, /* freed; a stream may still use it */
	COW__CUDA_HOLE,    /* addresses with nothing mapped */
	COW__CUDA_LEAVING, /* about to become a hole */
};

struct cow__cuda_segment;

struct cow__cuda_block {
	struct cow__cuda_block *prev, *next; /* by address */
	/* free: in the bin of its size class; used: in the list of those with uses; waiting:
	 * in the list of those that wait */
	struct cow__cuda_block *list_prev, *list_next;
	struct cow__cuda_segment *segment;
	struct cow__cuda_use *uses;
	cow__cu_ptr ptr;
	size_t bytes, requested;
	uint64_t user;
	uint8_t state;
	bool split; /* it is free and a neighbour is not: for the statistics */
};

struct cow__cuda_segment {
	struct cow__node node; /* key: address */
	struct cow__cuda *device;
	struct cow__cuda_pool *pool; /* NULL: an outside block (cuda/memory.h) */
	struct cow__cuda_segment *next; /* in the pool's list */
	struct cow__cuda_block *first;
	size_t bytes;                    /* of addresses */
	size_t unit;                     /* bytes of a piece; 0: the driver mapped it */
	struct cow__cuda_piece **pieces; /* one for each unit, or NULL */
	/* Of an outside block. */
	struct cow__cu_stream *stream;
	bool ended; /* the stream has ended: the block has none */
	cow__cuda_done_fn *done;
	void *done_user;
};

#define COW__CUDA_BINS 640

struct cow__cuda_pool {
	struct cow__cuda_pool *next;
	struct cow__cuda *device;
	struct cow__cu_stream *stream;
	struct cow__cuda_segment *segments;
	int kind;   /* enum cow_cuda_pool: small or large */
	bool ended; /* its stream has ended: another pool may adopt its memory ... */
	struct cow__cu_event *end; /* ... when this mark has passed */
	uint64_t map[COW__CUDA_BINS / 64];
	struct cow__cuda_block *bins[COW__CUDA_BINS];
};

struct cow__cuda_list {
	struct cow__cuda_block *first, *last;
};

struct cow__cuda_memory {
	struct cow__cuda *device;
	struct cow__mutex release; /* of the thread that gives back; before memory_lock */
	struct cow__cuda_pool *pools; /* the last used one first */
	struct cow__node *segments;
	struct cow__cuda_list waiting; /* freed blocks that a stream may still use */
	struct cow__cuda_list noted;   /* used blocks that have uses */
	bool stuck; /* units under holes could not be unmapped */
	struct cow_cuda_stats stats;
	struct { /* the part of the stats that belongs to data (cuda/data.h), not to blocks */
		uint64_t allocated, active; /* addresses */
		uint64_t reserved;          /* physical memory */
	} data;
	uint64_t limit; /* bytes that the process may have; atomic */
	struct cow_cuda_trace_entry *trace;
	size_t trace_entries, trace_bytes;
	uint64_t traced;
	struct cow_allocator cached, single;
};

/* ---- Bins ---------------------------------------------------------------------- */

struct cow__cuda_block *cow__cuda_best_fit(struct cow__cuda_pool *p, size_t bytes);
void cow__cuda_bin_add(struct cow__cuda_block *b);
void cow__cuda_bin_remove(struct cow__cuda_block *b);

/* Cuts the end of a block off, behind `bytes`, as a block of its own with the same state, in
 * no list. NULL: no memory for metadata. */
struct cow__cuda_block *cow__cuda_split(struct cow__cuda_block *b, size_t bytes);
/* Merges a block with its neighbours of the same state and returns the result. A free block
 * must be in no bin; the result is in one. */
struct cow__cuda_block *cow__cuda_merge(struct cow__cuda_block *b);
struct cow__cuda_block *cow__cuda_block_make(struct cow__cuda_segment *s,
                                             cow__cu_ptr ptr, size_t bytes);
void cow__cuda_block_drop(struct cow__cuda_block *b);

void cow__cuda_list_add(struct cow__cuda_list *l, struct cow__cuda_block *b);
void cow__cuda_list_remove(struct cow__cuda_list *l, struct cow__cuda_block *b);

/* ---- Segments ------------------------------------------------------------------ */

/* Gets memory from the driver: *ret is a free block of at least `bytes`, in its bin. */
int cow__cuda_grow(struct cow__cuda_pool *p, size_t bytes,
                   struct cow__cuda_block **ret);
/* Makes all free memory that can be given back LEAVING. Returns how many blocks. */
size_t cow__cuda_claim(struct cow__cuda_memory *m);
/* Gives LEAVING memory to the driver; with `keep` makes it free again. *ret_bytes is how much
 * the driver got. Entered. */
int cow__cuda_let_go(struct cow__cuda_memory *m, bool keep, uint64_t *ret_bytes);
void cow__cuda_segment_add(struct cow__cuda_memory *m, struct cow__cuda_segment *s);
struct cow__cuda_segment *cow__cuda_segment_make(struct cow__cuda *d, cow__cu_ptr ptr,
                                                 size_t bytes);
void cow__cuda_segment_end(struct cow__cuda_memory *m, struct cow__cuda_segment *s);

/* Ends an expandable segment if nothing is mapped in it; leaves others. */
void cow__cuda_segment_drop(struct cow__cuda_memory *m, struct cow__cuda_segment *s);
/* Unmaps a unit and drops its piece. */
int cow__cuda_unit_unmap(struct cow__cuda_segment *s, cow__cu_ptr at);
/* Counts memory that was mapped (`sign` 1) or is about to be unmapped (-1) in this block. */
void cow__cuda_count_mapped(struct cow__cuda_memory *m,
                            const struct cow__cuda_block *b, int sign);

/* Rounded up to whole units. */
static inline size_t
cow__cuda_units(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static inline struct cow__cuda_piece **
cow__cuda_piece_at(struct cow__cuda_segment *s, cow__cu_ptr at)
{
	return &s->pieces[(at - s->node.key) / s->unit];
}

/* The segment that begins at or below the address. */
struct cow__cuda_segment *cow__cuda_segment_below(struct cow__cuda_memory *m,
                                                  cow__cu_ptr at);

/* ---- The rest ------------------------------------------------------------------ */

/* The pool of that stream and kind; makes it if there is none. NULL: no memory for metadata. */
struct cow__cuda_pool *cow__cuda_pool_of(struct cow__cuda *d,
                                         struct cow__cu_stream *stream, int kind);
void cow__cuda_pool_drop(struct cow__cuda_pool *p);
/* Moves memory of streams that have ended to this pool. True: there was some. Entered. */
bool cow__cuda_adopt(struct cow__cuda_pool *p);

/* Looks at blocks that wait (`all`, or up to 8), and frees those that can be. Entered. */
void cow__cuda_drain(struct cow__cuda_memory *m, bool all);
/* Frees a block that no stream uses any more and that is in no list. False: it is an outside
 * block, which could not be ended now; it has to wait. */
bool cow__cuda_free_block(struct cow__cuda_memory *m, struct cow__cuda_block *b);

void cow__cuda_trace_add(struct cow__cuda_memory *m, int kind, uint64_t address,
                         uint64_t bytes, struct cow__cu_stream *stream,
                         uint64_t user);

static inline void
cow__cuda_trace(struct cow__cuda_memory *m, int kind, const struct cow__cuda_block *b)
{
	const struct cow__cuda_segment *s = b->segment;

	if (cow__unlikely(m->trace_entries))
		cow__cuda_trace_add(m, kind, b->ptr, b->bytes,
		                    s->pool ? s->pool->stream : s->stream, b->user);
}

static inline int
cow__cuda_kind(const struct cow__cuda_segment *s)
{
	return s->pool ? s->pool->kind : COW_CUDA_LARGE;
}

/* ---- Statistics: of all, and of one kind ------------------------------------------ */

static inline void
cow__cuda_stat_one(struct cow_cuda_stat *s, int64_t n)
{
	s->current += (uint64_t)n;
	if (n < 0) {
		s->freed += (uint64_t)-n;
		return;
	}
	s->allocated += (uint64_t)n;
	if (s->current > s->peak)
		s->peak = s->current;
}

static inline void
cow__cuda_stat(struct cow_cuda_stat *s, int kind, int64_t n)
{
	cow__cuda_stat_one(&s[COW_CUDA_ALL], n);
	cow__cuda_stat_one(&s[kind], n);
}

#endif
