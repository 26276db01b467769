/* SPDX-License-Identifier: MIT */
/*
 * Aliases in place: memory that others write, too, at the address it always had
 *
 * Whoever is sent an alias of a block writes the same pages. A block that was born
 * in a file of its own (core/cow/seal.h) has such pages; any other gets them now:
 *
 *   before   [ its pages, beside other blocks' ]
 *   now      [ a segment of its own, shared    ]  the bytes copied, the same address
 *
 * From here on it is *common*: mapped shared for good. It is not frozen, cloned by
 * page, given, thawed or recycled, and a forked child has it in common with its
 * parent. Freed, it is unmapped; the last process that has it ends it. A larger one
 * takes its bytes elsewhere, as any block that can't grow.
 *
 * A write during the change would be lost, so nobody may be writing: the caller says
 * so. Clones, or relatives, that still read the old pages are in the way.
 */
#ifndef COW_CORE_COW_ALIAS_H
#define COW_CORE_COW_ALIAS_H

#include "core/memory/tile.h"
#include "memfd/descriptor.h"

/* Engine locked. 0 or -errno, and then everything is as before: -EBUSY: somebody else
 * reads its pages, or the helper has them in hand; -EOPNOTSUPP: a device works on it,
 * or its mapping is not plain; -EMFILE, -ENOMEM. */
int cow__alias_in_place(struct cow__tile *t);

/* Another descriptor of a common tile's file, and where in it the tile begins. */
int cow__alias_file(const struct cow__tile *t, struct cow__descriptor *ret,
                    uint64_t *ret_offset);

#endif
