/* SPDX-License-Identifier: MIT */
/*
 * Targets: the pages that take the place of frozen ones (core/cow/rewrite.h)
 *
 * They are spare pages of the tile (core/memory/spare.h), or its own ones that nobody reads,
 * or new. They are written at an address of their own first, and then shown in the tile.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_TARGET_H
#define COW_CORE_COW_TARGET_H

#include "core/memory/tile.h"

struct cow__target {
	struct cow__piece piece; /* of this tile */
	uintptr_t at;            /* mapped shared here */
	bool fresh;
	bool punch;    /* its pages are small or full of holes: better none */
	size_t commit; /* so much of it is made huge */
	struct cow__tile *alias; /* of the tile's own pages; NULL: none */
	bool made;               /* the pages are new, and nobody has a reference yet */
};

/* Finds pages for [start, start + bytes) of `t`. */
int cow__target_for(struct cow__tile *t, uintptr_t start, size_t bytes,
                    struct cow__target *ret);

/* The same of new pages alone, which no relative has. `huge`: in huge pages. */
int cow__target_new(size_t bytes, bool huge, struct cow__target *ret);

/* Makes its pages huge, or gives up small ones. Takes long: needs no lock if the caller has a
 * reference on the pages. */
void cow__target_prepare(struct cow__target *to);

/* Maps the target in the place of [start, end), and notes it. After a failure the tile shows
 * what it showed. -EINVAL: it has not so many bytes. */
int cow__target_show(struct cow__tile *t, uintptr_t start, uintptr_t end,
                     const struct cow__target *to);

/* Gives up what cow__target_for() took, apart from the pieces of `t`. `used`: they are shown. */
void cow__target_end(struct cow__tile *t, struct cow__target *to, bool used);

#endif
