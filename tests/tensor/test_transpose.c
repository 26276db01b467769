/* SPDX-License-Identifier: MIT */
/*
 * Small transpositions: every level of vectors that this processor has gives the same
 * bytes, reads nothing outside of the source, and writes nothing but its rows.
 */
#include "tests/support/support.h"
#include "tensor/transpose.h"
#include "tensor/vector.h"

#include <string.h>
#include <sys/mman.h>

#define MOST ((size_t)128 * KIB)
#define BEFORE 1000 /* more than a row of the destination */
#define NONE INT64_MAX

/* Memory that ends where nothing is mapped. */
static char *end_of_memory(void)
{
	char *p = mmap(NULL, MOST + PAGE, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	ok(mprotect(p + MOST, PAGE, PROT_NONE));
	return p + MOST;
}

struct shape {
	int64_t bytes, ni, nj, from_i, to_j;
};

static struct shape random_shape(struct prng *r)
{
	struct shape s = { .bytes = (int64_t)1 << prng_below(r, 4) };

	s.ni = 1 + (int64_t)prng_below(r, prng_below(r, 2) ? 70 : 6);
	s.nj = 1 + (int64_t)prng_below(r, prng_below(r, 2) ? 70 : 6);
	s.from_i = s.nj * s.bytes;
	s.to_j = s.ni * s.bytes;
	if (prng_below(r, 3) == 0)
		s.from_i += (int64_t)prng_below(r, 40);
	if (prng_below(r, 3) == 0)
		s.to_j += (int64_t)prng_below(r, 40);
	if (prng_below(r, 4) == 0)
		s.from_i = 2 * s.bytes * s.nj;
	return s;
}

/* The first byte that is not as it should be, those before included. `done` of the rows count. */
static int64_t wrong(const struct shape *s, const char *to, const char *from,
                     int64_t done)
{
	static char expected[MOST];
	int64_t all = (s->nj - 1) * s->to_j + s->ni * s->bytes;

	memset(expected, 0x5a, (size_t)all);
	for (int64_t i = 0; i < done; i++)
		for (int64_t j = 0; j < s->nj; j++)
			memcpy(expected + i * s->bytes + j * s->to_j,
			       from + i * s->from_i + j * s->bytes,
			       (size_t)s->bytes);
	for (int64_t at = 0; at < all; at++)
		if (to[at] != expected[at])
			return at;
	for (int64_t at = -BEFORE; at < 0; at++)
		if (to[at] != 0x5a)
			return at;
	return NONE;
}

static void check(struct prng *r, cow__squares_fn *fn, char *to_end,
                  char *from_end)
{
	struct shape s = random_shape(r);
	char *to = to_end - ((s.nj - 1) * s.to_j + s.ni * s.bytes);
	char *from = from_end - ((s.ni - 1) * s.from_i + s.nj * s.bytes);
	int64_t done = s.ni, at;
	bool backwards = prng_below(r, 4) == 0;

	if (backwards) { /* the last row first */
		from += (s.ni - 1) * s.from_i;
		s.from_i = -s.from_i;
	}
	memset(to - BEFORE, 0x5a, (size_t)(to_end - to) + BEFORE);
	if (fn)
		done = fn(to, s.to_j, from, s.from_i, s.ni, s.nj, s.bytes);
	else
		cow__transpose(to, s.bytes, s.to_j, from, s.from_i, s.bytes,
		               s.ni, s.nj, s.bytes);
	must(done >= 0 && done <= s.ni);
	at = wrong(&s, to, from, done);
	if (at != NONE)
		ck_abort_msg("%ld x %ld of %ld bytes (%ld, %ld): byte %ld",
		             (long)s.ni, (long)s.nj, (long)s.bytes,
		             (long)s.from_i, (long)s.to_j, (long)at);
}

START_TEST(all_levels)
{
	struct prng r = prng_make(21);
	char *to = end_of_memory(), *from = end_of_memory();

	fill(from - MOST, MOST, 5);
	for (int level = -1; level < COW__VECTOR_LEVELS; level++) {
		cow__squares_fn *fn = level < 0 ? NULL : cow__squares(level);

		must(fn || level != 0);
		if (fn || level < 0)
			for (int i = 0; i < ROUNDS(30000); i++)
				check(&r, fn, to, from);
	}
	ok(munmap(to - MOST, MOST + PAGE));
	ok(munmap(from - MOST, MOST + PAGE));
}
END_TEST

/* Each level does by itself what it is made for. */
START_TEST(levels_do_their_work)
{
	static const int64_t narrowest[] = { 1, 2, 4 };
	static char to[MOST], from[MOST];

	for (int level = 0; level < COW__VECTOR_LEVELS; level++) {
		cow__squares_fn *fn = cow__squares(level);

		for (int64_t bytes = narrowest[level]; fn && bytes <= 8; bytes *= 2)
			ck_assert_int_eq(fn(to, 33 * bytes, from, 35 * bytes, 33,
			                    35, bytes), 33);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transpose");
	TCase *c = add_case(s, "transpose");

	tcase_add_test(c, all_levels);
	tcase_add_test(c, levels_do_their_work);
	return run_suite(s);
}
