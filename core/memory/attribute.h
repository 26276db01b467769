/* SPDX-License-Identifier: MIT */
/*
 * What the program did to a mapping of ours
 *
 * A block of malloc is anonymous memory as far as a program can tell, so it may
 * protect pages of it, lock them, or advise the kernel on them. Freezing and
 * thawing make new mappings, which forget all that. So it is written down, and
 * put back after every remapping.
 */
#ifndef COW_CORE_MEMORY_ATTRIBUTE_H
#define COW_CORE_MEMORY_ATTRIBUTE_H

#include "core/memory/tile.h"

enum cow__attribute_kind {
	COW__ATTRIBUTE_PROTECTION, /* value: PROT_... */
	COW__ATTRIBUTE_DUMP,       /* value: MADV_DONTDUMP or MADV_DODUMP */
	COW__ATTRIBUTE_FORK,       /* value: 1 not for a child, 0 as usual */
	COW__ATTRIBUTE_LOCK,       /* value: mlock2's flags, -1: unlocked */
	COW__ATTRIBUTE_WIPE,       /* value: 1 empty in a child, 0 not */
	COW__ATTRIBUTE_PLACE,      /* value: enum cow__place */
};
#define COW__ATTRIBUTES (COW__ATTRIBUTE_PLACE + 1)

/* What the program sees there. Only our mappings are ever made anew. */
enum cow__place {
	COW__PLACE_OURS, /* unless noted */
	COW__PLACE_OWN,  /* a mapping of its own, or anonymous memory */
	COW__PLACE_HOLE, /* unmapped; the addresses are still the engine's */
	COW__PLACE_ANON, /* anonymous memory that the engine put there, to be read */
};

/* Notes it for [start, end) of a live tile; later notes win. -ENOMEM. */
int cow__attribute_add(struct cow__tile *t, uintptr_t start, uintptr_t end,
                       enum cow__attribute_kind kind, int value);

/* The last value noted for `addr`, or `none`; *end comes down to where another
 * may begin. */
int cow__attribute_at(const struct cow__tile *t, enum cow__attribute_kind kind,
                      int none, uintptr_t addr, uintptr_t *end);

size_t cow__attributes_count(const struct cow__tile *t);

/* Has the program given a part of [start, end) a protection key? */
bool cow__attributes_have_key(const struct cow__tile *t, uintptr_t start,
                              uintptr_t end);

/* Is there something on [start, end) that emptying and protecting it anew leaves,
 * and a new mapping would not have? */
bool cow__attributes_linger(const struct cow__tile *t, uintptr_t start,
                            uintptr_t end);

/* Has all of the tile been unmapped? */
bool cow__attributes_unmapped(const struct cow__tile *t);

/* Forgets all notes on [start, end): another mapping takes its place. -ENOMEM:
 * nothing changed. */
int cow__attributes_cut(struct cow__tile *t, uintptr_t start, uintptr_t end);

/* Locks are not inherited by children. */
void cow__attributes_unlock(struct cow__tile *t);

/* Lets the engine read [start, end), until they are applied again. */
void cow__attributes_reveal(const struct cow__tile *t, uintptr_t start,
                            uintptr_t end);

/* Puts back what was noted within [start, end). Of what the program takes back
 * nothing: a mapping that is new is inherited if we say so, not otherwise. */
void cow__attributes_apply(const struct cow__tile *t, uintptr_t start,
                           uintptr_t end);

/* The same where the mapping was made with the protections that are noted: but for
 * keys they are not touched again. */
void cow__attributes_mapped(const struct cow__tile *t, uintptr_t start,
                            uintptr_t end);

/* What the program does not want a child to have, after all was given to children. */
void cow__attributes_withhold(const struct cow__tile *t, uintptr_t start,
                              uintptr_t end);

/* Calls `fn` for the ranges whose last note of this kind says `value`. It may
 * make notes of other kinds. */
void cow__attributes_each(struct cow__tile *t, enum cow__attribute_kind kind,
                          int value,
                          void (*fn)(struct cow__tile *t, uintptr_t start,
                                     uintptr_t end));

void cow__attributes_free(struct cow__tile *t);

#endif
