/* SPDX-License-Identifier: MIT */
/*
 * Sentences about failures
 */
#ifndef COW_CORE_BASE_ERROR_H
#define COW_CORE_BASE_ERROR_H

#include <stdint.h>

/* Notes why the calling thread's call fails and returns `error`. %zu-style
 * formatting does not exist here; `number` replaces the one '#'. Called by
 * public functions alone, never on the helper thread. */
int cow__error(int error, const char *sentence);
int cow__error_number(int error, const char *sentence, uint64_t number);

/* "`what` `name`: why", about a file of the program's. Of a long name the end. */
int cow__error_about(int error, const char *what, const char *name);

/* A sentence made of pieces: begins an empty one, and adds to its end. What does
 * not fit is left out. */
void cow__error_begin(void);
void cow__error_add(const char *piece);
void cow__error_add_number(int64_t number);

/* The usual sentence for an error that came from below. */
int cow__error_from(int error, const char *what);

/* Around a call of somebody else's who may know better: begin a sentence, call, and if
 * that failed, what is there stands. Those above pass the error on with
 * cow__error_passed(), which leaves such a sentence and makes the usual one otherwise. */
void cow__error_stands(void);
int cow__error_passed(int error, const char *what);

#endif
