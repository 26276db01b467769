/* SPDX-License-Identifier: MIT */
/*
 * Write intents: pages for memory that is about to be rewritten
 *
 * A write to frozen memory costs a fault and a copy for each 4 KiB, and the copy lies in
 * no file. A caller that announces a rewrite gets fresh pages for the whole range at once,
 * at the same address:
 *
 *   frozen     [ T, private: pages that V reads ]   a write copies 4 KiB
 *   rewritten  [ T, shared: other file pages    ]   written in place, in huge pages
 *              V reads the old pages as before
 *
 * All processors copy. Nobody else writes the memory meanwhile: the caller promises that.
 * Where nobody reads the old pages any more, the tile is thawed instead.
 *
 * A writer who computes the new bytes from the old ones needs no copy at all. He reads the
 * old ones at their place, and writes the new ones at another, which then takes its place
 * (cow__rewrite_begin()). tests/model/rewrite.pml has the proof, by all orders of the steps.
 *
 *   part of the range        what happens
 *   --------------------     ---------------------------------------------------------
 *   whole chunks of 2 MiB    their pages are replaced
 *   the rest                 stays frozen; so does what is less than a chunk, unless it
 *                            is a whole block
 *   not ours, not frozen     nothing: it is written in place, or by page
 */
#ifndef COW_CORE_COW_REWRITE_H
#define COW_CORE_COW_REWRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Prepares [start, end). `all`: all of it will be overwritten, so its bytes may become
 * anything. Adds the bytes that were copied to *copied. The engine is locked for one step of
 * 32 MiB at a time, or of a sixteenth of the block. Can't fail: what can't be replaced stays
 * as it is. */
void cow__rewrite(uintptr_t start, uintptr_t end, bool all, uint64_t *copied);

struct cow__rewrite;

/* Pages for all bytes of a block that is frozen and has other readers. *ret_at gets where
 * they are written. -EAGAIN: there is nothing to gain. -EBUSY: memory may be under I/O, or the
 * helper works on the block.
 * -ENOTSUP: this memory keeps its pages, or is not a whole block. -ENOMEM */
int cow__rewrite_begin(uintptr_t start, size_t bytes, void **ret_at, struct cow__rewrite **ret);

/* The pages take the place of those that the block shows, in one step, or they are given
 * up. Where that can't be, the bytes are copied. Frees `w`. -ESTALE: a forked child calls,
 * which lacks the pages. */
int cow__rewrite_end(struct cow__rewrite *w, bool keep);

/* Before a fork, engine locked: what is written of open rewrites from now on goes to private
 * pages, since the child may have the file. They end with a copy. child: it has none. */
void cow__rewrites_freeze(void);
void cow__rewrites_child(void);

/* Of the files that the process leaves (segment.h: leaving), unmaps the new pages of open rewrites,
 * apart from what the fork froze: threads may be writing there. Engine locked. -ENOMEM: the fork
 * could not freeze all, or no mapping is left. */
int cow__rewrites_unmap(void);

#endif
