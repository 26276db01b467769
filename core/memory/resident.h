/* SPDX-License-Identifier: MIT */
/*
 * Memory that thawed, or was mended, counts in RSS again
 *
 * A thaw maps the file's pages shared, and the new mapping has no page table entries. Mending
 * leaves none, either. A page that the program touches gets its entry back, the others don't. But
 * the kernel counts entries, so RSS, PSS and the score of the OOM killer would miss memory that
 * the program has. So the helper brings the entries back, when the program has not forked for a
 * while, and before it thaws the next slice. It looks which pages the file has, because to read a
 * hole would make a page. Less than 16 MiB starts no helper, so it waits until there is one; a
 * sixteenth of what is live may stay away.
 *
 * The next fork has to take the entries away again, as if the program had touched all of its
 * memory. Forks that follow each other faster find none of these.
 *
 * Engine locked.
 */
#ifndef COW_CORE_MEMORY_RESIDENT_H
#define COW_CORE_MEMORY_RESIDENT_H

#include "core/memory/tile.h"

/* So many bytes of the tile have just lost their entries. */
void cow__resident_later(struct cow__tile *t, size_t bytes);

/* A fork or a clone is prepared: others may follow soon. */
void cow__resident_before_freeze(void);

/* The helper's job. */
uint64_t cow__resident_job(uint64_t now);

#endif
