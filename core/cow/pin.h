/* SPDX-License-Identifier: MIT */
/*
 * Pinned extents: memory that a device reads and writes behind the page tables
 *
 * The driver keeps the *pages* that it found when the memory was registered. Were the
 * mapping to get others (by a freeze and a write, by a lazy copy, by recycling), the
 * device would go on with the old ones, and nobody would see what it writes. So a
 * pinned extent keeps its pages until it is unpinned: a forked child gets a copy.
 */
#ifndef COW_CORE_COW_PIN_H
#define COW_CORE_COW_PIN_H

#include <stdbool.h>
#include <stddef.h>

/* A live extent of whole pages, of a memfd where there is one, that is pinned from
 * birth: pin it in the driver afterwards. -ENOMEM; what the kernel says. */
int cow__pinned_extent_new(size_t bytes, void **ret);

/* Nobody pins it any more, and nobody uses it: it ends. Also in a forked child, whose
 * copy it is. */
void cow__pinned_extent_free(void *data);

/* It waits for its next user: what is in it matters to nobody. */
void cow__pinned_extent_set_idle(void *data, bool idle);

#endif
