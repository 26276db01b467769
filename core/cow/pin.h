/* SPDX-License-Identifier: MIT */
/*
 * Pinned extents: memory that a device reads and writes behind the page tables
 *
 * The driver keeps the *pages* that it found when the memory was registered. A
 * freeze and a write, a lazy copy, or recycling would give the mapping other
 * pages. The device would go on with the old pages, and the process would not see
 * what it writes. So a pinned extent keeps its pages until it is unpinned. A
 * forked child gets a copy.
 */
#ifndef COW_CORE_COW_PIN_H
#define COW_CORE_COW_PIN_H

#include <stdbool.h>
#include <stddef.h>

/* Makes a live extent of whole pages, of a memfd where there is one, that is
 * pinned from birth. The caller registers it with the driver afterwards. -ENOMEM;
 * what the kernel says. */
int cow__pinned_extent_new(size_t bytes, void **ret);

/* Frees an extent that no device pins and nobody uses any more. Also in a forked
 * child, which frees its copy. */
void cow__pinned_extent_free(void *data);

/* Idle: the extent waits for its next user, and its content is of no use. A
 * forked child gets the room without the bytes. */
void cow__pinned_extent_set_idle(void *data, bool idle);

#endif
