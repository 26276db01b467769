/* SPDX-License-Identifier: MIT */
/*
 * Which pages of a range the program did not touch
 */
#ifndef COW_CORE_PROGRAM_MISSING_H
#define COW_CORE_PROGRAM_MISSING_H

#include "core/memory/tile.h"

/*
 * Notes in `ret`, a bit for each page, what of [start, end) is missing: a userfaultfd may tell
 * of it. The engine may have made huge pages ahead of the program. These are missing, too. The
 * kernel may have taken a page of the file out of the page table, so what is in the file counts
 * as well. `zeros`: so do zeros that the program may have touched or not.
 */
void cow__note_missing(const struct cow__tile *t, uintptr_t start, uintptr_t end, bool zeros,
                       unsigned char *ret);

/* The same for pages without memory: neither the file has them, nor were they copied. -errno: that
 * can't be known. */
int cow__note_absent(const struct cow__tile *t, uintptr_t start, uintptr_t end,
                     unsigned char *ret);

/* Copies [start, end), but what is noted in `missing`. NULL: nothing is. */
void cow__copy_there(uintptr_t start, uintptr_t end, const unsigned char *missing, char *copy);

#endif
