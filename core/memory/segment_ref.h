/* SPDX-License-Identifier: MIT */
/*
 * A segment (core/memory/segment.h) as its tiles refer to it
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_MEMORY_SEGMENT_REF_H
#define COW_CORE_MEMORY_SEGMENT_REF_H

#include "memfd/descriptor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__span;
struct cow__tile;

struct cow__segment {
	struct cow__descriptor file;
	struct cow__segment *next;
	bool owner;     /* made by this process, which may allocate from it */
	bool forked;    /* other processes may have it */
	bool marked;    /* ... and one of them may be a stranger: never written in place again */
	bool stale;     /* pages that nobody uses lie in it, under bare addresses */
	bool single;    /* for one block (core/memory/own_segment.h) ... */
	uintptr_t sealed; /* ... sealed for other processes: its start, or 0 ... */
	size_t sealed_bytes; /* ... and all that the file has */
	uint32_t tiles; /* tiles that refer to it */
	struct cow__tile *control_tile;
	uint64_t *words; /* control part, mapped at the first fork: ... */
	uintptr_t page;  /* ... of a single one, memory that is in no file */
	uint32_t nwords;
	uint32_t free_word; /* + 1; head of the free list that is threaded through .. */
	uint32_t *free_words; /* .. this array; metadata of the owner */
	/* What was free and had pages when this process was forked: offsets in the file. No
	 * relative uses them while this process has the file. */
	struct cow__span *left;
	uint32_t nleft, left_cap;
	bool left_more; /* there was no memory to note all of them */
	uint64_t had;   /* bytes of pages, when somebody last looked for more of them */
	bool leaving;   /* core/fork/border.c or retire.c is about to give it up ... */
	bool gone;      /* ... and has: only private mappings are left */
	uintptr_t lock_at; /* a page of it that keeps the stranger's lock; 0: none, or it is sealed */
};

/* May free memory of this segment be handed out? NULL, anonymous memory: true. Not while
 * another process has the file: it could read what is written there. */
bool cow__segment_usable(const struct cow__segment *s);

void cow__segment_ref(struct cow__segment *s);
void cow__segment_unref(struct cow__segment *s);

/* Have all strangers let go of the file? */
bool cow__segment_left(const struct cow__segment *s);

/* The file offset of a window address. */
uint64_t cow__segment_offset(uintptr_t addr);

#endif
