/* SPDX-License-Identifier: MIT */
/*
 * Write intents in random programs: everybody keeps his bytes
 *
 * Storages, clones, clones of clones, writes by page and in bulk, frees, forks and trims,
 * against arrays of bytes.
 */
#include "tests/support/support.h"

#include <stdlib.h>
#include <string.h>

enum { STORAGES = 5, MOST = 9 * 1024 * 1024 };

struct pair {
	struct cow_storage *storage;
	unsigned char *p, *bytes;
	size_t size;
};

static struct prng prng;

static size_t below(size_t n)
{
	return prng_below(&prng, n);
}

static void check(const struct pair *a)
{
	if (a->storage && memcmp(a->p, a->bytes, a->size) != 0)
		ck_abort_msg("the bytes differ");
}

static void drop(struct pair *a)
{
	cow_storage_unref(a->storage);
	free(a->bytes);
	a->storage = NULL;
}

static void take(struct pair *a, struct cow_storage *s)
{
	a->storage = s;
	a->size = cow_storage_bytes(s);
	a->p = expose(s);
	a->bytes = malloc(a->size);
	memcpy(a->bytes, a->p, a->size);
}

static void write_some(struct pair *a)
{
	size_t at = below(a->size), n = 1 + below(a->size - at);

	if (below(2))
		n = n < 3 * PAGE ? n : 3 * PAGE;
	memset(a->p + at, (int)below(256), n);
	memcpy(a->bytes + at, a->p + at, n);
}

static void rewrite_some(struct pair *a)
{
	bool all = below(3) == 0, whole = below(3) != 0;
	size_t at = whole ? 0 : below(a->size);
	size_t n = whole ? a->size : 1 + below(a->size - at);

	struct cow_range range = { a->p + at, n };

	ok(cow_write_intent(&range, 1, all ? COW_WRITE_ALL : COW_WRITE_AUTO, NULL));
	if (!all)
		check(a);
	if (all || below(2)) {
		memset(a->p + at, (int)below(256), n);
		memcpy(a->bytes + at, a->p + at, n);
	}
}

/* The new bytes are computed on other pages, if that can be. */
static void rewrite_elsewhere(struct pair *a)
{
	struct cow_range range = { a->p, a->size };
	struct cow_rewrite *w;
	unsigned char *at;
	void *place;

	if (cow_rewrite_begin(&range, &place, &w) < 0)
		return;
	at = place;
	for (size_t i = 0; i < a->size; i++)
		at[i] = (unsigned char)(a->p[i] ^ 0x55);
	check(a);
	if (below(4) == 0) {
		ok(cow_rewrite_end(w, false));
		return;
	}
	if (below(4) == 0)
		cow_trim();
	ok(cow_rewrite_end(w, true));
	for (size_t i = 0; i < a->size; i++)
		a->bytes[i] ^= 0x55;
}

/* A clone of `*a`, made with clones of all the others. */
static struct cow_storage *clone_among(struct pair *s, const struct pair *a)
{
	struct cow_storage *from[STORAGES], *to[STORAGES], *ret = NULL;
	const struct pair *of[STORAGES];
	size_t n = 0;

	for (int i = 0; i < STORAGES; i++)
		if (s[i].storage) {
			of[n] = &s[i];
			from[n++] = s[i].storage;
		}
	ok(cow_storages_lazy_clone(from, n, NULL, to));
	for (size_t i = 0; i < n; i++) {
		must(memcmp(data(to[i]), of[i]->bytes, of[i]->size) == 0);
		if (of[i] == a)
			ret = to[i];
		else
			cow_storage_unref(to[i]);
	}
	return ret;
}

static void run(struct pair *s, int steps, bool forks);

static void in_the_child(void *arg)
{
	struct pair *s = arg;

	for (int i = 0; i < STORAGES; i++)
		check(&s[i]);
	run(s, 12, false);
}

static void run(struct pair *s, int steps, bool forks)
{
	for (int k = 0; k < steps; k++) {
		struct pair *a = &s[below(STORAGES)], *b = &s[below(STORAGES)];
		size_t what = below(100);

		if (!a->storage) {
			take(a, new_filled(1 + below(MOST), COW_STORAGE_TRANSPARENT,
			                   (unsigned)below(1000)));
		} else if (what < 30) {
			rewrite_some(a);
		} else if (what < 40) {
			rewrite_elsewhere(a);
		} else if (what < 60) {
			write_some(a);
		} else if (what < 80 && a != b) {
			if (b->storage)
				drop(b);
			take(b, below(2) ? lazy(a->storage) : clone_among(s, a));
			ck_assert_uint_eq(b->size, a->size);
			must(memcmp(b->bytes, a->bytes, a->size) == 0);
		} else if (what < 88) {
			drop(a);
		} else if (what < 92) {
			cow_trim();
		} else if (forks) {
			in_child(in_the_child, s);
		}
		for (int i = 0; i < STORAGES; i++)
			check(&s[i]);
	}
}

START_TEST(random_programs)
{
	struct pair s[STORAGES] = { { NULL, NULL, NULL, 0 } };

	prng = prng_make((uint64_t)_i + 1);
	run(s, 60, true);
	for (int i = 0; i < STORAGES; i++)
		if (s[i].storage)
			drop(&s[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rewrite_random");
	TCase *tcase = add_case(suite, "rewrite_random");

	tcase_add_loop_test(tcase, random_programs, 0, ROUNDS(60));
	return run_suite(suite);
}
