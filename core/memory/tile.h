/* SPDX-License-Identifier: MIT */
/*
 * Tiles: who owns which addresses
 *
 * The window is cut into tiles without gaps, kept in address order:
 *
 *   window  | free | live    | limbo | live | free warm | ...  | free (rest)  |
 *
 * A tile has two roles, each with a struct of its own. Most tiles play both.
 *
 *   Mapping. What the program sees at the tile's addresses: nothing, a segment
 *   shared (written in place), a segment private (writes go to copies), or
 *   anonymous memory.
 *
 *   Own pages. The file pages at the same offset in the tile's segment. Address =
 *   window start + offset: this identity lets neighbours merge into one kernel
 *   mapping. `refs` counts the mappings that read them: the tile's own, and
 *   views elsewhere.
 *
 * A mapping that is made of other tiles' pages lists them as `pieces`. Without a
 * list it has its own pages, all of them.
 *
 *   kind   | mapping           | pages
 *   -------+-------------------+----------------------------------------------
 *   free   | none or shared    | none (cold) or left over, reusable (warm)
 *   live   | program's         | its own, or none (a view of other tiles)
 *   limbo  | of no use         | read by views, or by another process
 *   inner  | the engine's own  | -
 *   lost   | the program's     | -  (see cow__window_yield())
 */
#ifndef COW_CORE_MEMORY_TILE_H
#define COW_CORE_MEMORY_TILE_H

#include "core/base/tree.h"

#include <sys/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cow__kind { COW__FREE, COW__LIVE, COW__LIMBO, COW__INNER, COW__LOST };
enum cow__backing { COW__NONE, COW__SHARED, COW__PRIVATE, COW__ANON };

/* Of free memory: warm has pages, cold is mapped without pages, bare is address
 * space. Cold and bare memory reads as zero once it is mapped. */
enum cow__heat { COW__BARE, COW__COLD, COW__WARM, COW__HEATS };

/* What a thread does with the pages without the lock: mostly the helper. */
enum cow__work {
	COW__WORK_NONE,
	COW__WORK_PAGES, /* it makes, moves or frees pages */
	COW__WORK_OWED,  /* the one that allocates it makes huge pages (core/memory/commit.c) */
	COW__WORK_PUNCH, /* it frees file pages under copied ones: no thaw */
	COW__WORK_DOOMED /* any of these, and the program freed it meanwhile: that thread ends it */
};

/* How far committing ahead is with it. Decides whose list it is on. */
enum cow__age {
	COW__AGE_GROWN, /* on none */
	COW__AGE_YOUNG, /* the program still fills it (core/memory/commit.c) */
	COW__AGE_MENDED /* its small pages are made huge (core/memory/mend.c) */
};

/* What the program has there. Each one includes those before. */
enum cow__use {
	COW__USE_STORAGE, /* nothing: a storage uses it, or it ends */
	COW__USE_EXPOSED, /* the address of the storage's bytes (transparent) */
	COW__USE_BLOCK,   /* handed out by cow_block_new() */
	COW__USE_MAPPING, /* ... or to the program's mmap (core/program/mapping.h) */
	COW__USE_PART     /* ... which goes on in the next tile: no storage */
};

/* Do parts of it belong to the program's own mappings, or to anonymous memory? */
enum cow__overlay { COW__OVERLAY_NONE, COW__OVERLAY_PARTS, COW__OVERLAY_LASTS /* it never thaws */ };

/* Who works on the pages behind this process's page tables? Then the tile keeps them and its address:
 * it is not frozen, copied lazily or resized. */
enum cow__outside {
	COW__OUTSIDE_NONE,
	COW__OUTSIDE_DEVICE,   /* pinned: not freed, either (core/cow/pin.h) */
	COW__OUTSIDE_IDLE,     /* ... and its content is of no use */
	COW__OUTSIDE_PROCESSES /* common: other processes write it (core/cow/alias.h) */
};

/* Chosen to be frozen with others, or copied for the child of the fork that is under way. Under one
 * hold of the lock. */
enum cow__mark { COW__MARK_NONE, COW__MARK_CHOSEN, COW__MARK_COPIED };

/* May other processes map its pages? (core/memory/holders.h) */
enum cow__held {
	COW__HELD_NEVER,
	COW__HELD_COUNTED,  /* they may, and its word or its file's tells which */
	COW__HELD_UNCOUNTED /* ... and some of them could not be counted */
};

struct cow__segment;
struct cow__allocation;
struct cow__slab;
struct cow__rewritten;
struct cow__attribute;
struct cow__tile;

/* `bytes` bytes of the file pages of `pages`, from `offset` within that tile
 * on. */
struct cow__piece {
	struct cow__tile *pages;
	size_t offset, bytes;
};

struct cow__span {
	uintptr_t start, end;
};

/* The first role: who has these addresses, and what is mapped there. */
struct cow__mapping {
	uint8_t backing; /* enum cow__backing */
	uint8_t use;     /* live: enum cow__use */
	uint8_t overlay; /* enum cow__overlay */
	uint8_t zeroed;  /* live: anonymous for its zeros, or was (core/cow/zeroed.h): one more than
	                  * the forks that copied its page tables; 0: never */
	bool slow;       /* the mapping is not plain: protections, others' pages */
	bool faded;      /* live: parts have no page tables since they thawed (core/memory/resident.h) */
	bool lazy;       /* live: copied lazily, its own pages are freed */
	size_t used;     /* live: bytes the program asked for */
	struct cow__allocation *allocation; /* live: whose data it is */
	struct cow__slab *slab;             /* live: cut into small storages */
	struct cow__piece *pieces;          /* NULL: it shows its own pages, all of them */
	uint32_t npieces, pieces_cap;
	struct cow__span *kept; /* private: the parts that are, in order; none: all */
	uint32_t nkept, kept_cap;
	struct cow__rewritten *rewritten; /* live: of rewrites in bulk (core/memory/spare.h); NULL: none */
	struct cow__node *attributes;     /* a tree (core/memory/attribute.h) */
	uint64_t written_back; /* live: bytes of copied pages that thaws wrote back */
};

/* The second role: pages of a file at the same offset, and who reads them. */
struct cow__pages {
	struct cow__segment *segment; /* NULL: it has none */
	uint32_t refs;    /* mappings that read them, the tile's own included ... */
	uint32_t open;    /* ... of which a child gets none: spare pages, rewrites that have begun */
	uint32_t word;    /* holder word + 1; 0: none yet */
	uint8_t held;     /* enum cow__held */
	uint8_t outside;  /* live: enum cow__outside */
	bool bound;       /* they may have a NUMA policy of the program's */
	bool small_pages; /* some are small that should be huge */
	bool shadow_less; /* some that `shadow` counts as freed are there again */
	size_t shadow;    /* private: so many bytes, at most, were freed under copied ones */
	size_t hollow;    /* free warm: bytes at the end that have none */
	uint64_t freed_at; /* free warm: since when */
};

/* How far the program fills a young tile, and committing goes ahead of it (core/memory/commit.c). */
struct cow__filling {
	uint8_t age; /* live: enum cow__age */
	size_t touched, committed, missed;
	size_t warm; /* so much of `touched` was there when the tile was made */
	uint64_t progress_at;
};

struct cow__tile {
	struct cow__node node; /* key: address */
	struct cow__tile *prev, *next;           /* in address order */
	struct cow__tile *bin_prev, *bin_next;   /* free: of equal size class */
	struct cow__tile *list_prev, *list_next; /* warm, young, mended or in limbo */
	size_t bytes;
	uint8_t kind;
	uint8_t work; /* enum cow__work */
	uint8_t mark; /* live: enum cow__mark */
	struct cow__mapping map;
	struct cow__pages own;
	struct cow__filling filling;
};

static inline bool
cow__tile_is_block(const struct cow__tile *t)
{
	return t->map.use >= COW__USE_BLOCK;
}

/* Does the program have its address? */
static inline bool
cow__tile_is_exposed(const struct cow__tile *t)
{
	return t->map.use >= COW__USE_EXPOSED;
}

static inline bool
cow__tile_is_common(const struct cow__tile *t)
{
	return t->own.outside == COW__OUTSIDE_PROCESSES;
}

static inline bool
cow__tile_is_pinned(const struct cow__tile *t)
{
	return t->own.outside == COW__OUTSIDE_DEVICE || t->own.outside == COW__OUTSIDE_IDLE;
}

static inline bool
cow__tile_is_mapping(const struct cow__tile *t)
{
	return t->map.use >= COW__USE_MAPPING;
}

/* May a thread be freeing file pages under copied ones? */
static inline bool
cow__tile_is_punched(const struct cow__tile *t)
{
	return t->work >= COW__WORK_PUNCH;
}

/* A thread has finished its work. It ends the tile by cow__extent_free() if that is doomed. */
static inline void
cow__tile_work_ends(struct cow__tile *t)
{
	if (t->work != COW__WORK_DOOMED)
		t->work = COW__WORK_NONE;
}

/* For a live tile. A copy into it reads the backing without the lock while a fork
 * in another thread freezes the tile. The copy is right with either value. */
static inline void
cow__tile_set_backing(struct cow__tile *t, enum cow__backing backing)
{
	__atomic_store_n(&t->map.backing, (uint8_t)backing, __ATOMIC_RELAXED);
}

static inline bool
cow__tile_is_shared(const struct cow__tile *t)
{
	return __atomic_load_n(&t->map.backing, __ATOMIC_RELAXED) == COW__SHARED;
}

static inline uintptr_t
cow__tile_start(const struct cow__tile *t)
{
	return t->node.key;
}

static inline uintptr_t
cow__tile_end(const struct cow__tile *t)
{
	return t->node.key + t->bytes;
}

/* A clone asks without the lock whether the program did anything to the mapping. */
static inline void
cow__tile_set_slow(struct cow__tile *t)
{
	__atomic_store_n(&t->map.slow, true, __ATOMIC_RELAXED);
}

static inline bool
cow__tile_is_slow(const struct cow__tile *t)
{
	return __atomic_load_n(&t->map.slow, __ATOMIC_RELAXED);
}

/* All of these want the engine locked. */

/* The tile that contains `addr`, or NULL outside of the window. */
struct cow__tile *cow__tile_find(uintptr_t addr);

/* The first tile of the window, for walks along `next`. */
struct cow__tile *cow__tile_first(void);

/* Makes the whole window one bare free tile. */
int cow__tiles_init(uintptr_t start, size_t bytes);

/* Sets free memory from `at` on apart, for COW__WANT_MAPPING alone, for good.
 * -ENOMEM: nothing changed. */
int cow__tiles_part(uintptr_t at);

enum cow__want {
	COW__WANT_ANON = 1 << 0,    /* anonymous memory, not a segment's */
	COW__WANT_MAPPING = 1 << 1, /* behind the parting */
};

/* A free tile of this heat that can hold `bytes` at `align`, of the smallest size
 * that fits; NULL if none. It looks at eight candidates of each size class, so it
 * may miss one. */
struct cow__tile *cow__tile_search(enum cow__heat heat, unsigned want,
                                   size_t bytes, size_t align);

/* Is a free tile of the kind that is wanted? */
bool cow__tile_serves(const struct cow__tile *t, unsigned want);

/* The tile that the last cow__tile_carve() left behind its piece, if it is warm
 * and of the size of `bytes`. It may also be up to 1/16 smaller, if cold memory
 * is behind it. NULL otherwise. */
struct cow__tile *cow__tile_rest(unsigned want, size_t bytes);

/* Cuts [start, start + bytes) out of a free tile and returns it, taken off the
 * free lists. What is left stays free. NULL: no memory for metadata, nothing
 * changed. The caller sets the kind before it unlocks. */
struct cow__tile *cow__tile_carve(struct cow__tile *t, uintptr_t start,
                                  size_t bytes);

/* Takes addresses for a mapping of the engine's own off the free lists. Their
 * offset from a multiple of `unit` (a power of two of at least COW__HUGE) is that
 * of `like`. They lie at a far end, where no block will want to grow. NULL: no
 * room. */
struct cow__tile *cow__tile_inner(size_t bytes, uintptr_t like, size_t unit);

/* Unmaps such addresses, and makes them free. */
void cow__tile_inner_free(struct cow__tile *t);

/* Makes a tile free and merges it with free neighbours of its kind. `t` may be
 * gone afterwards: returns the tile that covers it. */
struct cow__tile *cow__tile_put(struct cow__tile *t);

/* Takes a free tile off the free lists. To change its heat or backing: take it
 * off, change it, cow__tile_put() it. */
void cow__tile_unlist(struct cow__tile *t);

enum cow__heat cow__tile_heat(const struct cow__tile *t);

/* Brackets around every change of a tile's mapping, so that the number of
 * kernel mappings in the window stays known. */
void cow__tile_change_begin(const struct cow__tile *t);
void cow__tile_change_end(const struct cow__tile *t);

/* The same around a run of shared neighbours that the kernel has merged, and that
 * become private together. `count`: how many they are. */
void cow__tiles_change_begin(const struct cow__tile *from,
                             const struct cow__tile *to);
void cow__tiles_change_end(const struct cow__tile *from,
                           const struct cow__tile *to, size_t count);

/* Grows a live tile at its end by `bytes`, taken from the free tile behind it,
 * which must be large enough. */
int cow__tile_grow(struct cow__tile *t, size_t bytes);

/* Is `b`, which may be NULL, free memory in the same file as `t`, mapped alike? */
static inline bool
cow__tile_same_mapping(const struct cow__tile *t, const struct cow__tile *b)
{
	return b && b->kind == COW__FREE && b->map.backing == t->map.backing &&
	       b->own.segment == t->own.segment;
}

/* Cuts the end of a live tile off as a tile of its own, same kind. */
struct cow__tile *cow__tile_cut(struct cow__tile *t, size_t bytes);

/* Bytes of a private tile that were copied, or -errno if that can't be told. */
ssize_t cow__copied_bytes(const struct cow__tile *t);

#endif
