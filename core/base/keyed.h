/* SPDX-License-Identifier: MIT */
/*
 * A hash for tables whose keys other processes choose
 *
 * SipHash-2-4 (Aumasson and Bernstein, 2012) of whole words. Its key is random and stays
 * in the process. Without the key nobody finds inputs that meet in one bucket, so a peer
 * can't turn a table into a list. A multiplication with a secret added is no substitute:
 * inputs that differ by certain amounts meet there, whatever the secret is.
 */
#ifndef COW_CORE_BASE_KEYED_H
#define COW_CORE_BASE_KEYED_H

#include <stdint.h>

struct cow__hash_key {
	uint64_t a, b;
};

/* Of `n` words, at most 31: the length goes in as one byte. */
uint64_t cow__keyed_hash(const struct cow__hash_key *key, const uint64_t *words,
                         unsigned n);

#endif
