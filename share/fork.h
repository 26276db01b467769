/* SPDX-License-Identifier: MIT */
/*
 * fork, for memory that is shared with other processes
 *
 * The child becomes a member of each group of its parent, and holds what its parent
 * holds. Aliases stay aliases. In everything else parent and child go on with the bytes
 * of the moment of the fork, as in all memory: packs become private mappings
 * (share/pack.h). A home that the program may have a pointer for writing to may differ
 * from its file after the fork (`diverged`, share/home.h).
 */
#ifndef COW_SHARE_FORK_H
#define COW_SHARE_FORK_H

/* Registers the fork hooks of share/. May be called again. */
void cow__share_fork_init(void);

#endif
