/* SPDX-License-Identifier: MIT */
/*
 * For the plain programs of this folder
 *
 * These programs know nothing of cowshed. Each looks after its own memory,
 * dies with a message when a byte or a result is not what malloc, fork and the
 * kernel promise, and prints lines that are the same in every run. The scripts
 * in tests/preload/ run each with and without the shim and compare.
 *
 * Compile without optimizing malloc away (-fno-builtin).
 */
#ifndef COWSHED_TESTS_PROGRAM_H
#define COWSHED_TESTS_PROGRAM_H

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/pattern.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#ifndef TEST_PAGE /* scripts/kernels-cross.sh: of another kernel */
#define TEST_PAGE 4096
#endif
#define PAGE ((size_t)TEST_PAGE)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define check(condition)                                                       \
	do {                                                                   \
		if (!(condition))                                              \
			failed(__FILE__, __LINE__, #condition);                \
	} while (0)

static inline void failed(const char *file, int line, const char *condition)
{
	dprintf(2, "%s:%d: not so: %s (errno %d)\n", file, line, condition,
	        errno);
	_exit(1);
}

static inline int holds(const void *memory, size_t bytes, uint64_t seed)
{
	return first_wrong(memory, bytes, seed) == bytes;
}

static inline int all(const void *memory, size_t bytes, unsigned char value)
{
	const unsigned char *p = memory;

	return bytes == 0 ||
	       (p[0] == value && memcmp(p, p + 1, bytes - 1) == 0);
}

static inline unsigned char *get(size_t bytes)
{
	unsigned char *p = malloc(bytes);

	check(p != NULL);
	return p;
}

static inline unsigned char *get_filled(size_t bytes, uint64_t seed)
{
	unsigned char *p = get(bytes);

	fill(p, bytes, seed);
	return p;
}

/* Page aligned, all pages its own. */
static inline unsigned char *get_pages(size_t bytes)
{
	void *p = NULL;

	check(posix_memalign(&p, PAGE, bytes) == 0);
	check((uintptr_t)p % PAGE == 0);
	return p;
}

static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1d;
}

static inline size_t below(uint64_t *state, size_t limit)
{
	return (size_t)(next_random(state) >> 16) % limit;
}

/* Runs `body` in a child, which ends with status 0 if all checks hold. */
static inline pid_t start(void (*body)(void *), void *arg)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	check(child >= 0);
	if (child > 0)
		return child;
	body(arg);
	_exit(0);
}

static inline void finish(pid_t child)
{
	int status;
	pid_t got;

	do {
		got = waitpid(child, &status, 0);
	} while (got < 0 && errno == EINTR);
	check(got == child);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void in_child(void (*body)(void *), void *arg)
{
	finish(start(body, arg));
}

/* A pipe to wait at. */
static inline void gate_make(int gate[2])
{
	check(pipe(gate) == 0);
}

static inline void gate_open(int gate[2])
{
	check(write(gate[1], "!", 1) == 1);
}

static inline void gate_wait(int gate[2])
{
	struct pollfd wait = { .fd = gate[0], .events = POLLIN };
	char permission;
	int ready;

	do {
		ready = poll(&wait, 1, 60000);
	} while (ready < 0 && errno == EINTR);
	check(ready == 1);
	check(read(gate[0], &permission, 1) == 1);
}

#endif
