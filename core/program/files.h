/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of files that the program has mapped (option keep-files)
 *
 * A program may map a file that has no name any more, and close its descriptor. Then only the
 * mapping leads to the file, and the kernel opens that way for privileged processes
 * alone. A process that wants the bytes once more, privately, would have to copy them.
 * So a descriptor is kept as long as a part of the mapping is there. It is found among
 * those of the process, by the file's device and inode.
 */
#ifndef COW_CORE_PROGRAM_FILES_H
#define COW_CORE_PROGRAM_FILES_H

#include "memfd/export.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The option: the least mapping of which a descriptor is kept. 0: none. Atomic. */
extern size_t cow__files_least;

/* How many are kept. Atomic. */
extern size_t cow__files_kept;

/* After the program has mapped `bytes` of a file, shared: keeps a descriptor of it, if it has
 * no name. Where that can't be had, nothing is kept. */
void cow__files_keep(uintptr_t start, size_t bytes, int fd);

/* Before pages are unmapped, or something else is mapped there: closes the descriptors of
 * which no mapping is left. */
void cow__files_forget(uintptr_t start, size_t bytes);

/* After mremap has moved a mapping, or changed its size. */
void cow__files_moved(uintptr_t start, size_t old_bytes, uintptr_t to, size_t bytes);

#endif
