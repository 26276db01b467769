/* SPDX-License-Identifier: MIT */
/*
 * What the kernel would refuse
 *
 * It refuses anonymous memory that the machine could never have, and so do we:
 * it would let us map a file of any size, and kill the program later. Where
 * memory is counted when it is granted (core/memory/state.h: `counted`), the answer is
 * another each time.
 */
#ifndef COW_CORE_MEMORY_OVERCOMMIT_H
#define COW_CORE_MEMORY_OVERCOMMIT_H

#include <stddef.h>

/* Would so many more bytes be granted? 0 or -ENOMEM. Growing is asked for as
 * mremap() does it: what is new. Not locked; may give warm memory back. */
int cow__overcommit_ask(size_t bytes);

#endif
