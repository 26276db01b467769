/* SPDX-License-Identifier: MIT */
/*
 * Thawing: back to writing in place
 *
 * Being frozen is dear for memory that is rewritten: each page costs a copy,
 * becomes a small page, and leaves the frozen one behind as a shadow. So when
 * nobody else reads the frozen pages any more (the clone is gone, the forked
 * child exited or exec'd), they are mapped shared again, in place:
 *
 *   clean parts        mapped shared again; costs what their page tables cost
 *   few pages written  those are written back to the file first
 *   densely written    left private, as anonymous memory is after a fork too;
 *                      the file pages under the copies are given back
 *
 * A page that is copied by a writer between the look and the remapping would be
 * lost, so this needs a moment in which nobody can write: the process is quiet
 * (memfd/quiet.h), or the storage is tracked and its writer is the caller. And
 * no device or ring may be writing: where memory may be pinned, copied pages
 * stay where they are.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_THAW_H
#define COW_CORE_COW_THAW_H

#include "core/cow/exclusive.h"
#include "core/memory/tile.h"

/* Thaws one tile. Nobody writes it now, and it is exclusive. 0 or -errno: the
 * bytes are as before in any case. */
int cow__thaw(struct cow__tile *t);

/* The same for a part of it: about `most` bytes from where the last one stopped,
 * less if much of that was written. Who writes a page now and then shall not wait
 * for all of them; half of the tile or more is all of it. */
int cow__thaw_some(struct cow__tile *t, size_t most);

/* Thaws what can be thawed, if the process is quiet. Cheap when nothing is
 * frozen or the children that hold it live on. */
void cow__thaw_all(void);

/* Where that is not possible because other threads run: gives the frozen pages
 * under copied ones back, now and then. `unlocked` meanwhile, for the helper. */
void cow__shadows_release(uint64_t now, bool unlocked);

/* The helper's job. */
uint64_t cow__shadows_job(uint64_t now);

#endif
