/* SPDX-License-Identifier: MIT */
/*
 * fork, for what is shared with other processes
 *
 * The child is one more member of each group, and holds what its parent holds.
 * Aliases stay aliases. Everything else goes on with the bytes of this moment in
 * both processes, as all memory does: packs become private mappings (share/pack.h),
 * and what somebody may have a pointer to write to is no longer what the file
 * says (`diverged`, share/home.h).
 */
#ifndef COW_SHARE_FORK_H
#define COW_SHARE_FORK_H

/* From now on forks are prepared here, too. */
void cow__share_fork_init(void);

#endif
