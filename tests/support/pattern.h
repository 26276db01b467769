/* SPDX-License-Identifier: MIT */
/*
 * Bytes that depend on a seed and on their position
 *
 * Eight at a time: x ^ x >> 32 of an x that grows by an odd constant, and starts at random for
 * each seed and each block of a kilobyte. So words of another storage, of another page or of
 * another time are never right by accident, and single bytes as seldom as any. And it is cheap,
 * since tests do little else than compare: two such words at once, in vectors that every machine
 * has. Knows nothing of cowshed: tests/programs/ have it, too.
 */
#ifndef COWSHED_TESTS_PATTERN_H
#define COWSHED_TESTS_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PATTERN_STEP 0x9e3779b97f4a7c15
enum { PATTERN_BLOCK = 1024 };
typedef uint64_t pattern_two __attribute__((vector_size(16)));

/* At random, each number another one. */
static inline uint64_t pattern_start(uint64_t seed)
{
	uint64_t x = seed + PATTERN_STEP;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* Of a block of `bytes`, word for word: writes `to`, or compares `is`; the first wrong one. */
static inline size_t pattern_slowly(unsigned char *to, const unsigned char *is, size_t bytes,
                                    uint64_t x)
{
	size_t i, j, n;

	for (i = 0; i < bytes; i += n, x += PATTERN_STEP) {
		uint64_t word = x ^ x >> 32;

		n = bytes - i < 8 ? bytes - i : 8;
		if (to != NULL)
			memcpy(to + i, &word, n);
		for (j = 0; is != NULL && j < n; j++)
			if (is[i + j] != ((unsigned char *)&word)[j])
				return i + j;
	}
	return bytes;
}

static inline void fill(void *data, size_t bytes, uint64_t seed)
{
	uint64_t start = pattern_start(seed);
	unsigned char *p = (unsigned char *)data;
	size_t i, j;

	if (bytes == 0)
		return;
	for (i = 0; i + PATTERN_BLOCK <= bytes; i += PATTERN_BLOCK) {
		uint64_t first = pattern_start(start + i);
		pattern_two x = { first, first + PATTERN_STEP };

		for (j = 0; j < PATTERN_BLOCK; j += sizeof(x), x += 2 * PATTERN_STEP) {
			pattern_two now = x ^ x >> 32;

			__builtin_memcpy(p + i + j, &now, sizeof(now));
		}
	}
	pattern_slowly(p + i, NULL, bytes - i, pattern_start(start + i));
}

/* The position of the first byte that is not the pattern's, or `bytes`. */
static inline size_t first_wrong(const void *data, size_t bytes, uint64_t seed)
{
	uint64_t start = pattern_start(seed);
	const unsigned char *p = (const unsigned char *)data;
	size_t i, j;

	if (bytes == 0)
		return 0;
	for (i = 0; i + PATTERN_BLOCK <= bytes; i += PATTERN_BLOCK) {
		uint64_t first = pattern_start(start + i);
		pattern_two x = { first, first + PATTERN_STEP }, now, wrong = { 0, 0 };

		for (j = 0; j < PATTERN_BLOCK; j += sizeof(x), x += 2 * PATTERN_STEP) {
			__builtin_memcpy(&now, p + i + j, sizeof(now));
			wrong |= now ^ x ^ x >> 32;
		}
		if ((wrong[0] | wrong[1]) != 0)
			break;
	}
	return i + pattern_slowly(NULL, p + i, bytes - i, pattern_start(start + i));
}

#endif
