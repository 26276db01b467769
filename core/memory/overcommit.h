/* SPDX-License-Identifier: MIT */
/*
 * What the kernel would refuse
 *
 * The kernel refuses anonymous memory that the machine could never have. Of a
 * memfd it lets a process map any size, and kills the process later. So the
 * engine asks the kernel before it grants memory, and refuses what the kernel
 * would refuse. Where the kernel counts memory as it grants it (`counted` in
 * core/memory/engine.h), the answer may differ each time.
 */
#ifndef COW_CORE_MEMORY_OVERCOMMIT_H
#define COW_CORE_MEMORY_OVERCOMMIT_H

#include <stddef.h>

/* Would the kernel grant so many more bytes? 0 or -ENOMEM. For growth ask for the
 * new bytes alone, as mremap() does. Engine not locked. May give warm memory
 * back. */
int cow__overcommit_ask(size_t bytes);

#endif
