/* SPDX-License-Identifier: MIT */
/*
 * What is free in a pack
 *
 * Between share/pack.c, which makes and maps a pack's file, and share/pack_space.c, which
 * hands out its extents. Only the owner of a pack has a space.
 *
 * When the owner frees an extent that another member or a message still holds, the extent
 * waits in *limbo*. The owner looks at limbo when it allocates, and when it sweeps.
 *
 * The caller of each function holds cow__share_lock.
 */
#ifndef COW_SHARE_PACK_SPACE_H
#define COW_SHARE_PACK_SPACE_H

#include "share/hold.h"

/* NULL: no memory. cow__space_begin() makes it ready for a pack of `pages`: 0 or -errno. */
struct cow__pack_space *cow__space_new(void);
int cow__space_begin(struct cow__pack_space *s, uint32_t pages);
/* Takes NULL. */
void cow__space_free(struct cow__pack_space *s);

/* The size that an extent of `pages` gets, and its class. */
uint32_t cow__space_round(uint32_t pages, unsigned *ret_class);

/* Takes an extent of that size and class. False: the pack has no room for it. */
bool cow__space_take(struct cow__pack *p, uint32_t pages, unsigned class,
                     uint32_t *ret);

/* Ends this process's hold on an extent. The last holder gives its pages back. */
void cow__space_give(struct cow__pack *p, const struct cow__extent_at *at);

/* Looks at up to `most` extents in limbo, and frees those that nobody holds any more. */
void cow__space_poll(struct cow__pack *p, uint32_t most);

/* Is anything in limbo? NULL: no. */
bool cow__space_is_waiting(const struct cow__pack_space *s);

#endif
