/* SPDX-License-Identifier: MIT */
/*
 * Spare pages: what a tile is rewritten into next time
 *
 * A tile that is rewritten in bulk (core/cow/rewrite.h) leaves its pages to those who
 * still read them, and gets others. When nobody reads the old ones any more, they are
 * spare: the next rewrite copies into them. Nothing is faster than memory that is there.
 *
 *   snapshot 1   [ T shows its own pages ]              rewrite: T shows L, which is new
 *   it is freed  the own pages are spare
 *   snapshot 2   [ T shows L ]                          rewrite: T shows its own pages again
 *   it is freed  L is spare
 *
 * So a state that is saved again and again has two places. Spare pages are kept for twice
 * the time between the last two rewrites, for a minute at most. After the first rewrite,
 * and where more than a minute passed, they are kept for ten seconds. That is never less
 * than the decay time. cow_trim() gives them back at once.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_MEMORY_SPARE_H
#define COW_CORE_MEMORY_SPARE_H

#include "core/memory/tile.h"

/* Pages that [at, ...) of a tile may be rewritten into. */
struct cow__spare {
	size_t at;
	struct cow__piece piece;
};

/* What is known of a live tile that was rewritten in bulk. */
struct cow__rewritten {
	struct cow__spare *spares;
	uint32_t nspares, cap;
	bool listed;      /* old pages of it may be spare */
	bool own_punched; /* some of its own pages, which nobody read, were given back */
	size_t own_huge;  /* so many bytes from the start were made huge for a rewrite */
	uint64_t at;      /* when it was rewritten last; 0: a rewrite has only begun */
	uint64_t keep_ns; /* so long after that its spare pages are kept */
};

/* That of the tile. Makes it if there is none; NULL: there is no memory for it. */
struct cow__rewritten *cow__rewritten_of(struct cow__tile *t);

/* Keeps pages that [at, ...) of a live tile showed until now: takes a reference. Where
 * memory for that lacks, they are not kept. */
void cow__spare_keep(struct cow__tile *t, size_t at, const struct cow__piece *p);

/* Spare pages for [at, at + bytes), which nobody reads, in this process or another. The
 * caller gets the reference. False: there are none. */
bool cow__spare_take(struct cow__tile *t, size_t at, size_t bytes,
                     struct cow__piece *ret);

/* New pages are about to be taken for [at, at + bytes): gives back spare ones that can't be written
 * beside a relative. Otherwise there would be a third place for each state. */
void cow__spares_useless(struct cow__tile *t, size_t at, size_t bytes);

/* Are the tile's own pages under [at, at + bytes) read by nobody? */
bool cow__spare_own(const struct cow__tile *t, size_t at, size_t bytes);

/* Maps a part of a tile's own pages shared, elsewhere. NULL: no memory. */
struct cow__tile *cow__spare_alias(const struct cow__tile *t, size_t at, size_t bytes);

/* The tile was rewritten. */
void cow__spare_rewritten(struct cow__tile *t);

/* The tile ends. */
void cow__spares_drop(struct cow__tile *t);

/* Gives back what is too old (`all`: everything). Returns the bytes. */
size_t cow__spares_release(uint64_t now, bool all);

/* May there be any? */
bool cow__spares_any(void);

/* In a forked child, before its copies of blocks take their places: the spare pages are its
 * parent's. */
void cow__spares_child(void);

/* In a forked child: drops a reference that the parent alone has (`open`). */
void cow__spare_leave(struct cow__tile *pages);

/* The helper's job. */
uint64_t cow__spares_job(uint64_t now);

#endif
