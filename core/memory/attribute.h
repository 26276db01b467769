/* SPDX-License-Identifier: MIT */
/*
 * What the program did to a mapping of the engine
 *
 * To a program a block of malloc() is anonymous memory. So it may protect pages
 * of a block, lock them, or advise the kernel on them. Freezing and thawing make
 * new mappings, which have none of that. The engine notes it as attributes of the
 * tile, and puts it back after every remapping.
 */
#ifndef COW_CORE_MEMORY_ATTRIBUTE_H
#define COW_CORE_MEMORY_ATTRIBUTE_H

#include "core/memory/tile.h"

enum cow__attribute_kind {
	COW__ATTRIBUTE_PROTECTION, /* value: PROT_... */
	COW__ATTRIBUTE_DUMP,       /* value: MADV_DONTDUMP or MADV_DODUMP */
	COW__ATTRIBUTE_FORK,       /* value: 1: not for children, 0: inherited */
	COW__ATTRIBUTE_LOCK,       /* value: flags of mlock2(), -1: unlocked */
	COW__ATTRIBUTE_WIPE,       /* value: 1: empty in a child, 0: not */
	COW__ATTRIBUTE_PLACE,      /* value: enum cow__place */
};
#define COW__ATTRIBUTES (COW__ATTRIBUTE_PLACE + 1)

/* What the program sees at an address. The engine maps anew only what is its
 * own. */
enum cow__place {
	COW__PLACE_OURS, /* unless noted */
	COW__PLACE_OWN,  /* a mapping of the program's own, of any kind */
	COW__PLACE_COPY, /* the same, but surely private anonymous memory, which may be read */
	COW__PLACE_HOLE, /* unmapped; the addresses are still the engine's */
	COW__PLACE_ANON, /* anonymous memory that the engine put there, to be read */
};

static inline bool
cow__place_is_programs(int place)
{
	return place == COW__PLACE_OWN || place == COW__PLACE_COPY;
}

/* Notes the value for [start, end) of a live tile. A later note of the same kind
 * replaces an earlier one. -ENOMEM. */
int cow__attribute_add(struct cow__tile *t, uintptr_t start, uintptr_t end,
                       enum cow__attribute_kind kind, int value);

/* The value that holds at `addr`, or `none` if nothing was noted. *end is lowered
 * to the address where another value may begin. */
int cow__attribute_at(const struct cow__tile *t, enum cow__attribute_kind kind,
                      int none, uintptr_t addr, uintptr_t *end);

/* Has any tile one? */
bool cow__attributes_any(void);

size_t cow__attributes_count(const struct cow__tile *t);

/* Has the program given a part of [start, end) a protection key? */
bool cow__attributes_have_key(const struct cow__tile *t, uintptr_t start,
                              uintptr_t end);

/* Has [start, end) an attribute that stays when the range is emptied and
 * protected anew, and that a new mapping would not have: a key, a lock, an advice
 * for dumps or children? */
bool cow__attributes_linger(const struct cow__tile *t, uintptr_t start,
                            uintptr_t end);

/* Has the program unmapped all of the tile? */
bool cow__attributes_unmapped(const struct cow__tile *t);

/* Has it unmapped a part? Then nobody can read the tile as a whole. */
bool cow__attributes_holed(const struct cow__tile *t);

/* Forgets all notes on [start, end), where another mapping takes the place.
 * -ENOMEM: nothing changed. */
int cow__attributes_cut(struct cow__tile *t, uintptr_t start, uintptr_t end);

/* The same for the notes of one kind. */
int cow__attribute_cut(struct cow__tile *t, uintptr_t start, uintptr_t end,
                       enum cow__attribute_kind kind);

/* Forgets all locks: children do not inherit them. */
void cow__attributes_unlock(struct cow__tile *t);

/* Lets the engine read [start, end), until cow__attributes_apply() protects it
 * again. */
void cow__attributes_reveal(const struct cow__tile *t, uintptr_t start,
                            uintptr_t end);

/* Puts back on a new mapping what was noted within [start, end): protections,
 * keys, locks, advice for dumps, and what children shall not inherit. */
void cow__attributes_apply(const struct cow__tile *t, uintptr_t start,
                           uintptr_t end);

/* The same where the mapping was made with the noted protections. Of those only
 * the keys are set again. */
void cow__attributes_mapped(const struct cow__tile *t, uintptr_t start,
                            uintptr_t end);

/* Withholds from children what the program asked to withhold (MADV_DONTFORK). It
 * is called after all mappings were made to be inherited. */
void cow__attributes_withhold(const struct cow__tile *t, uintptr_t start,
                              uintptr_t end);

/* Calls `fn` for each range whose last note of this kind says `value`. `fn` may
 * make notes of other kinds. */
void cow__attributes_each(struct cow__tile *t, enum cow__attribute_kind kind,
                          int value,
                          void (*fn)(struct cow__tile *t, uintptr_t start,
                                     uintptr_t end));

void cow__attributes_free(struct cow__tile *t);

#endif
