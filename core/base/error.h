/* SPDX-License-Identifier: MIT */
/*
 * Error messages: the sentences that cow_last_error() returns
 */
#ifndef COW_CORE_BASE_ERROR_H
#define COW_CORE_BASE_ERROR_H

#include <stdint.h>

/* Notes why the calling thread's call fails, and returns `error`. There is no
 * printf() formatting: `number` takes the place of each '#'. Public functions
 * call these. The helper thread never does. */
int cow__error(int error, const char *sentence);
int cow__error_number(int error, const char *sentence, uint64_t number);

/* Makes "`what` `name`: why", about a file of the program. Of a name of more than
 * 120 bytes the sentence has the last 120. */
int cow__error_about(int error, const char *what, const char *name);

/* Makes a sentence from pieces. The first call begins an empty one, the others
 * add to its end. What does not fit into 399 bytes is left out. */
void cow__error_begin(void);
void cow__error_add(const char *piece);
void cow__error_add_number(int64_t number);

/* Makes the usual sentence for an error that a lower layer returned. */
int cow__error_from(int error, const char *what);

/* For a call into code that may make a better sentence, such as an allocator of
 * the program. First call cow__error_begin(), then that code. If it fails,
 * cow__error_stands() keeps the sentence that it made, if any. The callers above
 * pass the error on with cow__error_passed(), which leaves a kept sentence alone
 * and makes the usual one otherwise. */
void cow__error_stands(void);
int cow__error_passed(int error, const char *what);

#endif
