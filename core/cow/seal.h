/* SPDX-License-Identifier: MIT */
/*
 * Giving: a block's pages to other processes, as they lie
 *
 * A segment holds many blocks, so its descriptor is not for others. A large block
 * that may be sent gets a segment of its own when it is born; giving it away is
 * then a freeze and a seal, and no byte is copied:
 *
 *   born     [ segment of its own, shared ]        written in place
 *   given    [ the same, private ]  sealed, and    each write copies a page
 *            the descriptor goes out
 *   freed    unmapped; the last process that has it ends it
 *
 * Large is from 64 MiB on; with the option `share` from 4 MiB on, where giving begins
 * to cost less than a copy (bench/give.c).
 *
 * What is given is never written, thawed, punched or used again: for the engine it
 * is as a tile that a relative holds who can't be counted (core/memory/holders.h). That
 * the file has these bytes and no others is not reckoned but asked: by the seal,
 * which the kernel refuses while anything maps the file for writing, and then by a
 * look for data elsewhere in it.
 */
#ifndef COW_CORE_COW_SEAL_H
#define COW_CORE_COW_SEAL_H

#include "core/memory/tile.h"
#include "memfd/descriptor.h"

/* Was it born for it? If not, nothing else needs to be asked. Engine locked. */
bool cow__seal_may(const struct cow__tile *t);

/*
 * Another descriptor of the sealed file with the block's bytes, at *ret_offset.
 * `bytes`: all that its user asked for. Engine locked; no I/O to the memory is under
 * way. -errno: it can't be given, copy it; the bytes are as before, though perhaps
 * frozen. -EBUSY: not at this moment.
 */
int cow__seal(struct cow__tile *t, size_t bytes, struct cow__descriptor *ret,
              uint64_t *ret_offset);

#endif
