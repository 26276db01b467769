/* SPDX-License-Identifier: MIT */
/*
 * Healing forward: rewritten memory leaves a file that relatives have
 *
 * While another process has the file of frozen pages, they are not thawed in place
 * (core/memory/holders.h). A child that lives for ever, or a stranger's mark, would keep the
 * memory frozen for ever: small pages, which each fork copies one by one in its page tables.
 * So the helper moves what was rewritten into new pages, in a file that no relative has:
 *
 *   before   [ T, private: file F, which a child has; most pages copied ]
 *   after    [ T, shared:  file G, this process's alone, huge pages     ]
 *            F's pages stay for the child, and go when nobody reads them
 *
 * It moves chunks of 2 MiB in which nearly all pages were copied: that takes no memory. Where
 * nobody else reads the old pages, an eighth is enough, since they are given back. The rest
 * stays private pages, as on plain Linux. It needs a quiet moment, as a thaw does, and takes
 * slices as short.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_FORWARD_H
#define COW_CORE_COW_FORWARD_H

#include <stdint.h>

/* The helper's job. */
uint64_t cow__forward_job(uint64_t now);

/* Gives up the new pages of a move that has begun. */
void cow__forward_stop(void);

/* Before a fork, too, because the child may not have a file into which a move goes on to write.
 * Where forks follow each other so closely that the helper never begins, some of them move a part
 * of a zeroed block (core/cow/zeroed.h), until all of it is moved. Each takes about as long for that
 * as two forks take for such a block without the library: 20 ms for a GiB. */
void cow__forward_before_fork(void);

#endif
