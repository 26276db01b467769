/* SPDX-License-Identifier: MIT */
/*
 * A thread that writes one word in every eighth page, over and over, and checks that the
 * word is there
 */
#ifndef COWSHED_TESTS_WRITER_H
#define COWSHED_TESTS_WRITER_H

#include "program.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { WORDS = 64 };

static const size_t stride = 8 * PAGE / sizeof(uint64_t);
static volatile uint64_t *words;
static atomic_bool stop;
static atomic_int turns;

static inline void *write_and_look(void *arg)
{
	uint64_t n;
	size_t i;

	for (n = 1; !atomic_load(&stop); n++) {
		for (i = 0; i < WORDS; i++)
			words[i * stride] = n;
		for (i = 0; i < WORDS; i++)
			check(words[i * stride] == n);
		atomic_fetch_add(&turns, 1);
	}
	return arg;
}

static inline void wait_for_turns(int n)
{
	int from = atomic_load(&turns);

	while (atomic_load(&turns) - from < n)
		sched_yield();
}

#endif
