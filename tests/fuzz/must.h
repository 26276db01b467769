/* SPDX-License-Identifier: MIT */
/*
 * An assertion for fuzzers: says what is not so, and aborts
 */
#ifndef COWSHED_TESTS_MUST_H
#define COWSHED_TESTS_MUST_H

#include <cowshed.h>
#include <stdio.h>
#include <stdlib.h>

#define must(condition)                                                        \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__,  \
			        __LINE__, #condition, cow_last_error());       \
			abort();                                               \
		}                                                              \
	} while (0)

#endif
