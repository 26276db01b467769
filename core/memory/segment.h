/* SPDX-License-Identifier: MIT */
/*
 * Segments: the memfds under the window
 *
 * A segment is a sparse memfd as long as the window. The page at window offset
 * n is the segment's page n, so blocks that neighbour in address neighbour in
 * the file and merge into one kernel mapping, however many there are. Its size
 * is final at birth, and sealed.
 *
 * A process allocates from one segment at a time. It begins another one when
 * its segment is also held by forked relatives: a survivor keeps a whole memfd
 * alive, so memory that it does not share must not lie in one that it holds.
 * When the relatives are gone the old segments serve again. A forked child
 * never allocates from its parent's segments.
 *
 * Behind the window part lies the control part: one word for each tile that was
 * ever inherited, with a bit for each holder (core/memory/holders.h). A segment for a single
 * block has it elsewhere: there would be no sealing the file.
 */
#ifndef COW_CORE_MEMORY_SEGMENT_H
#define COW_CORE_MEMORY_SEGMENT_H

#include "memfd/descriptor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__tile;

struct cow__segment {
	struct cow__descriptor file;
	struct cow__segment *next;
	bool owner;     /* made by this process: it may allocate from it */
	bool forked;    /* other processes may hold it */
	bool stale;     /* nobody's pages lie in it under bare addresses */
	bool single;    /* for one block (core/cow/seal.h) ... */
	uintptr_t given; /* ... which other processes have, sealed: its start ... */
	size_t given_bytes; /* ... and all that the file has */
	uint32_t tiles; /* that refer to it */
	struct cow__tile *control_tile;
	uint64_t *words; /* control part, mapped at the first fork: ... */
	uintptr_t page;  /* ... of a single one, memory that is in no file */
	uint32_t nwords;
	uint32_t free_word; /* + 1; head of the list threaded through .. */
	uint32_t *free_words; /* .. this array; metadata of the owner */
};

#define COW__WORDS_MAX ((uint32_t)1 << 20)

/* The segment to allocate from, made if need be. Engine locked. */
int cow__segment_current(struct cow__segment **ret);

/* One for a single block. -EMFILE: there are `most` already. */
int cow__segment_single(unsigned most, struct cow__segment **ret);
bool cow__segment_single_left(void);

/* May free memory of it be handed out? True for NULL. Warm memory of a segment
 * that others hold may: it is little, and leaving it unused would cost more. */
bool cow__segment_usable(const struct cow__segment *s, bool warm);

void cow__segment_ref(struct cow__segment *s);
void cow__segment_unref(struct cow__segment *s);

/*
 * Addresses of it go to another file, or nowhere: frees the pages under them, which are
 * nobody's. Else they would be found by whoever is handed these addresses as fresh memory of
 * this segment; where they can't be freed or cleared, nothing is allocated from it any more. Of a single
 * block's nothing is, so its pages stay.
 */
void cow__segment_leave(struct cow__segment *s, uintptr_t at, size_t bytes);

/* Unmaps cold memory (2 MiB and more in a piece) of segments that are not allocated from (`all`: of any),
 * and closes segments that nothing refers to. */
void cow__segments_sweep(bool all);

/* Closes segments that nothing refers to. Are there any that were a block's alone? All
 * of their pages are kept by the descriptor, so they don't wait for a sweep. */
void cow__segments_end(void);
bool cow__segments_ended(void);

/* Maps the control part. Before the first word is taken. */
int cow__segment_control(struct cow__segment *s);

/* A word, zeroed: its number + 1; 0 if there are none left. */
uint32_t cow__segment_word_new(struct cow__segment *s);
void cow__segment_word_free(struct cow__segment *s, uint32_t word);

/* In a forked child: none is ours any more. */
void cow__segments_child(void);

/* File offset of a window address. */
uint64_t cow__segment_offset(uintptr_t addr);

#endif
