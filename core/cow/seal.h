/* SPDX-License-Identifier: MIT */
/*
 * Sealing: a block's pages for other processes, as they lie
 *
 * A segment usually holds many blocks, so its descriptor can't be sent to others.
 * A large block that may be sent gets a segment of its own when it is born
 * (core/memory/own_segment.h). Sending it is then a freeze and a seal, and no
 * byte is copied:
 *
 *   born     [ segment of its own, shared ]        written in place
 *   sealed   [ the same, private ]  and the        each write copies a page
 *            descriptor goes out
 *   freed    unmapped; the last process that maps it ends it
 *
 * Large is from 64 MiB on. With the option `share` it is from 4 MiB on, where
 * sealing begins to cost less than a copy (bench/give.c).
 *
 * Sealed pages are never written, thawed, punched or used again. The engine
 * treats them as pages of a relative that can't be counted
 * (core/memory/holders.h).
 *
 * The file must have these bytes and no others. The engine does not compute that,
 * it asks the kernel. The kernel refuses the seal while anything maps the file
 * for writing. Then a look for data elsewhere in the file follows.
 */
#ifndef COW_CORE_COW_SEAL_H
#define COW_CORE_COW_SEAL_H

#include "core/memory/tile.h"
#include "memfd/descriptor.h"

/* Has the tile a segment of its own? If not, it can't be sealed. Engine
 * locked. */
bool cow__seal_may(const struct cow__tile *t);

/* Would cow__seal() copy nothing now? Nothing is changed, and no I/O is asked for. Engine
 * locked. */
enum cow__seal_ready {
	COW__SEAL_NOT,
	COW__SEAL_READY,
	COW__SEAL_DONE, /* it is sealed, and nothing was written since */
};
enum cow__seal_ready cow__seal_ready(const struct cow__tile *t, size_t bytes);

/*
 * Seals the block's file, and makes another descriptor of it with the block's
 * bytes at *ret_offset. `bytes`: all that its user asked for. Engine locked. No
 * I/O to the memory is under way. -errno: it can't be sealed, copy it. The bytes
 * are as before then, though perhaps frozen. -EBUSY: not at this moment.
 */
int cow__seal(struct cow__tile *t, size_t bytes, struct cow__descriptor *ret,
              uint64_t *ret_offset);

#endif
