/* SPDX-License-Identifier: MIT */
/*
 * Segments: the memfds under the window
 *
 * A segment is a sparse memfd as long as the window. The page at window offset n
 * is the segment's page n. So blocks that are neighbours in address are
 * neighbours in the file. They merge into one kernel mapping, however many there
 * are. The size of a segment is final at birth, and sealed.
 *
 * A process allocates from one segment at a time. It begins another one when
 * forked relatives hold its segment, too. A surviving relative keeps a whole
 * memfd alive, and can read all of it, so memory that is not shared with it must lie
 * elsewhere. When the relatives are gone the old segments serve again, unless one of them
 * became a stranger (core/fork/border.h). A forked child never allocates from its
 * parent's segments.
 *
 * Behind the window part lies the control part (core/memory/control.h).
 */
#ifndef COW_CORE_MEMORY_SEGMENT_H
#define COW_CORE_MEMORY_SEGMENT_H

#include "core/memory/segment_ref.h"

/* The segment to allocate from. Makes one if none serves. Engine locked. */
int cow__segment_current(struct cow__segment **ret);

/* Makes one for a single block. -EMFILE: there are `most` already. */
int cow__segment_single(unsigned most, struct cow__segment **ret);
bool cow__segment_single_left(bool apart); /* for COW__EXTENT_APART */

/*
 * Addresses of the segment go to another file, or become bare. Frees the pages
 * under them, which nobody uses. Otherwise a later block at these addresses would
 * find them, though fresh memory has to read as zero. Where the pages can be
 * neither freed nor cleared, nothing is allocated from the segment any more. A
 * single block's segment keeps its pages, since nothing else is allocated from
 * it.
 */
void cow__segment_leave(struct cow__segment *s, uintptr_t at, size_t bytes);

/* Unmaps cold memory, in pieces of 2 MiB and more, of segments that are not
 * allocated from (`all`: of all segments). Closes segments that no tile refers
 * to. */
void cow__segments_sweep(bool all);

/* end: closes segments that no tile refers to. ended: has a single block's
 * segment lost its last tile? Its descriptor keeps all of its pages, so it does
 * not wait for a sweep. */
void cow__segments_end(void);
bool cow__segments_ended(void);

/* Notes for the child what is free in a file of its parent, and has pages: plain Linux would not
 * let it see that. before_fork does so for all warm memory, so that the child need not map
 * memory for the notes, and parent forgets it. */
void cow__segment_note_left(struct cow__segment *s, uintptr_t at, size_t bytes);
void cow__segments_before_fork(void);
void cow__segments_parent(void);

/* Gives back what strangers filled: where a mapping of theirs reads a hole, the kernel puts a page
 * of zeros into the file, which would outlive them. It looks once a second (`all`: now). */
void cow__segments_return_filled(uint64_t now, bool all);

/*
 * This process is about to become a stranger to others that have the file.
 *
 * give_up: takes what the process holds for good besides its private mappings: gives back
 *          what was free, and locks the file for those who want to give pages back. `hard`:
 *          the process may be able to open the file again (/proc/self/map_files), so the
 *          kernel has to refuse every write. -errno: nothing has changed that matters.
 * gone:    marks the file, closes it, and unmaps its control part.
 * seal:    the kernel refuses every write from now on, also of a file that is gone: the process
 *          did not lose the capability to open it again, as it seemed before. 0 or -errno.
 * unlock:  lets go of the lock of a file of which nothing else is mapped any more. Such a process
 *          could open the file by that mapping, too.
 */
int cow__segment_give_up(struct cow__segment *s, bool hard);
int cow__segment_seal(struct cow__segment *s);
void cow__segment_unlock(struct cow__segment *s);

/* Gives back what was noted as left in a file that the process keeps. 0 or -errno. */
int cow__segment_forget_left(struct cow__segment *s);

int cow__segment_gone(struct cow__segment *s);

/* In a forked child: it owns none of its parent's segments. */
void cow__segments_child(void);

#endif
