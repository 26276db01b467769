/* SPDX-License-Identifier: MIT */
/*
 * The control part of a segment, which says who has its pages
 *
 * Behind the window part of the file lies the control part: one word for each tile that was
 * ever inherited, with a bit for each holder (core/memory/holders.h). A segment
 * for a single block keeps its control part elsewhere, as a file with it could
 * not be sealed.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_MEMORY_CONTROL_H
#define COW_CORE_MEMORY_CONTROL_H

#include "core/memory/segment_ref.h"

#define COW__WORDS_MAX ((uint32_t)1 << 20)
#define COW__CONTROL_BYTES (COW__WORDS_MAX * sizeof(uint64_t))

/* Maps the control part. Called before the first word is taken. */
int cow__segment_control(struct cow__segment *s);

/* Unmaps it: this process neither asks nor tells any more who has the file. 0 or -errno. */
int cow__segment_control_end(struct cow__segment *s);

/* Takes a word and zeroes it. Returns its number + 1, or 0 if none is left. */
uint32_t cow__segment_word_new(struct cow__segment *s);
void cow__segment_word_free(struct cow__segment *s, uint32_t word);

/* Gives back the list of free words, when the segment ends. */
void cow__segment_control_free(struct cow__segment *s);

#endif
