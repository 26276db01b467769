/* SPDX-License-Identifier: MIT */
/*
 * The hash of the broker's tables: SipHash-2-4 (Aumasson and Bernstein, 2012)
 *
 * Clients choose tokens, names and, with subordinate users, user ids. The key is
 * random and never leaves the broker. Without it nobody finds inputs that meet in
 * one bucket, so a client can't make other clients' requests walk a long list. The
 * library has the same function (core/base/keyed.c); the command uses the public
 * headers alone.
 */
#include "cli/broker.h"

#include <errno.h>
#include <sys/random.h>

struct state {
	uint64_t a, b, c, d;
};

static uint64_t rotate_left(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void mix(struct state *s)
{
	s->a += s->b;
	s->c += s->d;
	s->b = rotate_left(s->b, 13) ^ s->a;
	s->d = rotate_left(s->d, 16) ^ s->c;
	s->a = rotate_left(s->a, 32);
	s->c += s->b;
	s->a += s->d;
	s->b = rotate_left(s->b, 17) ^ s->c;
	s->d = rotate_left(s->d, 21) ^ s->a;
	s->c = rotate_left(s->c, 32);
}

static void absorb_word(struct state *s, uint64_t word)
{
	s->d ^= word;
	mix(s);
	mix(s);
	s->a ^= word;
}

uint64_t broker_hash(const struct broker_hash_key *key, const uint64_t *words,
                     unsigned n)
{
	/* The constants are "somepseudorandomlygeneratedbytes". */
	struct state s = { key->a ^ 0x736f6d6570736575u,
		           key->b ^ 0x646f72616e646f6du,
		           key->a ^ 0x6c7967656e657261u,
		           key->b ^ 0x7465646279746573u };

	for (unsigned i = 0; i < n; i++)
		absorb_word(&s, words[i]);
	absorb_word(&s, (uint64_t)(n * 8) << 56);
	s.c ^= 0xff;
	for (int i = 0; i < 4; i++)
		mix(&s);
	return s.a ^ s.b ^ s.c ^ s.d;
}

int broker_hash_key(struct broker_hash_key *ret)
{
	ssize_t n = getrandom(ret, sizeof(*ret), 0);

	return n < 0 ? -errno : n == (ssize_t)sizeof(*ret) ? 0 : -EAGAIN;
}
