/* SPDX-License-Identifier: MIT */
/*
 * Test support: what a test leaves in the file system when it fails
 *
 * A failed assertion ends the test's process, and with it what would have tidied up. So
 * folders get names with the runner's number in them, and the runner, which asserts nothing,
 * removes what has such a name in the end, and ends brokers that still listen there.
 */
#ifndef COWSHED_TESTS_LEFT_H
#define COWSHED_TESTS_LEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { LEFT_NAME = 48 };

/* Makes /tmp/cowshed-KIND-RUNNER-XXXXXX. */
void left_folder(char name[LEFT_NAME], const char *kind);

/* Who listens at a path, or, after '@', at an abstract name; 0: nobody. */
pid_t left_listener(const char *address);

/* In the runner: before and after its tests. Returns how much it removed and ended. */
void left_begin(void);
int left_end(void);

#endif
