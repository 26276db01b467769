/* SPDX-License-Identifier: MIT */
/*
 * Aliases in place: memory that other processes write, too, at its old address
 *
 * A process that receives an alias of a block writes the same pages. A block that
 * was born in a segment of its own (core/memory/own_segment.h) has such pages.
 * Any other block gets them here:
 *
 *   before   [ its pages, beside other blocks' ]
 *   after    [ a segment of its own, shared    ]  the bytes copied, the same address
 *
 * From here on the block is *common*: mapped shared for good. It is not frozen,
 * cloned by page, sealed, thawed or recycled. A forked child has it in common
 * with its parent. When it is freed it is unmapped; the last process that maps it
 * ends it. To grow it takes its bytes elsewhere, as any block that can't grow in
 * place.
 *
 * A write during the change would be lost, so nobody may write the block. The
 * caller guarantees that. The change fails while clones or relatives still read
 * the old pages.
 */
#ifndef COW_CORE_COW_ALIAS_H
#define COW_CORE_COW_ALIAS_H

#include "core/memory/tile.h"
#include "memfd/descriptor.h"

/* Makes a live tile common. Engine locked. 0 or -errno, and then everything is as
 * before. -EBUSY: another mapping or process reads its pages, or the helper works
 * on them. -EOPNOTSUPP: a device works on it, or its mapping is not plain.
 * -EMFILE, -ENOMEM. */
int cow__alias_in_place(struct cow__tile *t);

/* Makes another descriptor of a common tile's file, and says where in it the tile
 * begins. -ENOTSUP: the tile is not common. */
int cow__alias_file(const struct cow__tile *t, struct cow__descriptor *ret,
                    uint64_t *ret_offset);

/* Does a common tile begin at this place of the file? *ret: its address. Engine locked. */
bool cow__alias_at(uint64_t dev, uint64_t ino, uint64_t offset, uintptr_t *ret);

#endif
