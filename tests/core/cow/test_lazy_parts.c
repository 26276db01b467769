/* SPDX-License-Identifier: MIT */
/*
 * Lazy copies of parts: nobody can tell them from real ones
 *
 * Random programs copy parts of storages lazily to parts of others, write either side,
 * clone, resize, free and fork, and are compared with arrays of bytes. That anything is
 * lazy is checked by the counter of bytes that were not copied.
 */
#include "tests/support/tensors.h"

#include <stdlib.h>
#include <string.h>

enum { PART_LEAST = 384 * 1024 };

static struct cow_tensor *part(struct cow_storage *s, size_t offset, size_t bytes)
{
	struct cow_tensor *t;

	ok(cow_tensor_on(s, COW_UINT8, 1, SIZES((int64_t)bytes), NULL,
	                 (int64_t)offset, &t));
	return t;
}

static struct cow_stats stats_of(void)
{
	struct cow_stats s = { .size = sizeof(s) };

	ok(cow_stats_get(&s));
	return s;
}

/* How many bytes were not copied. */
static size_t copy_part(struct cow_storage *to, size_t at, struct cow_storage *from,
                        size_t offset, size_t bytes)
{
	struct cow_tensor *a = part(to, at, bytes), *b = part(from, offset, bytes);
	uint64_t before = stats_of().bytes_not_copied;

	ok(cow_tensor_copy(a, b, COW_COPY_LAZY));
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	return stats_of().bytes_not_copied - before;
}

/* Whole pages are shared, and the ends copied. */
START_TEST(pages_and_ends)
{
	struct cow_storage *a = new_filled(4 * MIB, 0, 1), *b = new_filled(8 * MIB, 0, 2);
	static const struct {
		size_t at, offset, bytes, shared;
	} cases[] = {
		{ MIB, MIB, 2 * MIB, 2 * MIB },
		{ 3 * MIB, 2 * MIB, MIB, MIB },
		{ MIB + 5, 5, 3 * MIB, 3 * MIB - PAGE },
		{ MIB - 1, PAGE - 1, 2 * MIB, 2 * MIB - PAGE },
		{ MIB + 5, 6, 3 * MIB, 0 },             /* not alike in their pages */
		{ MIB, MIB, PART_LEAST, 0 },            /* a small part of the source */
		{ 0, 0, MIB - PAGE, 0 },
		{ 5 * MIB, 0, MIB, MIB },
		{ 8 * MIB - 1, 0, 1, 0 },
	};
	size_t at = cases[_i].at, offset = cases[_i].offset, bytes = cases[_i].bytes;
	unsigned char *have, *want = malloc(8 * MIB), *source = malloc(4 * MIB);

	fill(want, 8 * MIB, 2);
	fill(source, 4 * MIB, 1);
	memcpy(want + at, source + offset, bytes);
	ck_assert_uint_eq(copy_part(b, at, a, offset, bytes), cases[_i].shared);
	must(memcmp(data(b), want, 8 * MIB) == 0);
	must(memcmp(data(a), source, 4 * MIB) == 0);
	/* Written: the destination's part, what is beside it, and the source. */
	have = mut_range(b, at, bytes, COW_WRITE_AUTO);
	have[at] ^= 0xff;
	want[at] ^= 0xff;
	have[at + bytes / 2] ^= 0xff;
	if (bytes > 1)
		want[at + bytes / 2] ^= 0xff;
	else
		have[at] = want[at];
	must(memcmp(data(a), source, 4 * MIB) == 0);
	memset(mut(a), 0x33, 4 * MIB);
	must(memcmp(data(b), want, 8 * MIB) == 0);
	memset(mut(b), 0x44, 8 * MIB);
	ck_bytes(data(a), 4 * MIB, 0x33);
	cow_storage_unref(a);
	cow_trim();
	ck_bytes(data(b), 8 * MIB, 0x44);
	cow_storage_unref(b);
	free(want);
	free(source);
}
END_TEST

static void writes_both(void *arg)
{
	struct cow_storage **s = arg;

	ck_bytes(data(s[1]), 6 * MIB, 0x55);
	memset(mut(s[1]), 0x66, 16 * MIB);
	ck_pattern(data(s[0]), 2 * MIB, 1);
}

/* What is beside the part stays mapped shared: writing it copies no pages. */
START_TEST(beside_it)
{
	struct cow_storage *a = new_filled(2 * MIB, 0, 1), *b = new_filled(16 * MIB, 0, 2);
	struct cow_storage_info info = { .size = sizeof(info) };
	unsigned char *p;
	uint64_t before;

	ck_assert_uint_eq(copy_part(b, 6 * MIB, a, 0, 2 * MIB), 2 * MIB);
	before = stats_of().freezes;
	p = mut(b);
	memset(p, 0x55, 6 * MIB);
	memset(p + 8 * MIB, 0x55, 8 * MIB);
	ck_assert_uint_eq(stats_of().freezes, before);
	ok(cow_storage_get_info(b, &info));
	ck_assert_uint_eq(info.mappings, 3);
	ck_pattern(data(a), 2 * MIB, 1);
	must(memcmp(data(b) + 6 * MIB, data(a), 2 * MIB) == 0);
	/* A fork freezes it: neither sees the other. */
	in_child(writes_both, (struct cow_storage *[]){ a, b });
	ck_bytes(data(b), 6 * MIB, 0x55);
	cow_storage_unref(a);
	memset(mut(b), 0x77, 16 * MIB);
	ck_bytes(data(b), 16 * MIB, 0x77);
	cow_storage_unref(b);
}
END_TEST

/* One source at two places: its page must not become one page for both. */
START_TEST(twice)
{
	struct cow_storage *a = new_filled(2 * MIB, 0, 1), *b = new_filled(4 * MIB, 0, 2);
	unsigned char *p, *want = malloc(2 * MIB), before;

	ck_assert_uint_eq(copy_part(b, 0, a, 0, 2 * MIB), 2 * MIB);
	ck_assert_uint_eq(copy_part(b, 2 * MIB, a, 0, 2 * MIB), 2 * MIB);
	before = data(b)[2 * MIB + 100];
	cow_storage_unref(a); /* now they are the only two readers */
	for (int i = 0; i < 3; i++) {
		p = mut(b);
		p[100] = (unsigned char)(before + 1 + i);
		ck_assert_uint_eq(data(b)[2 * MIB + 100], before);
	}
	memset(mut(b), 0x22, 2 * MIB);
	fill(want, 2 * MIB, 1);
	must(memcmp(data(b) + 2 * MIB, want, 2 * MIB) == 0);
	free(want);
	cow_storage_unref(b);
}
END_TEST

/* A thaw that leaves a part private, which begins in the middle of a huge page, must not
 * take what is beside it for private, too. */
START_TEST(thawed_beside_it)
{
	struct cow_storage *a = new_filled(MIB, 0, 1), *b = new_filled(8 * MIB, 0, 2);
	struct cow_storage *c;
	size_t half = MIB / 2;

	ck_assert_uint_eq(copy_part(b, half, a, 0, MIB), MIB);
	memset(mut_range(b, half, MIB, COW_WRITE_AUTO) + half, 0x11, MIB);
	cow_storage_unref(a);
	mut_range(b, half, 1, COW_WRITE_SPARSE)[half] = 0x11;
	c = lazy(b);
	mut_range(c, 7 * MIB, 1, COW_WRITE_BY_PAGE)[7 * MIB] ^= 1;
	memset(mut(b), 0x22, 8 * MIB);
	mut(c)[7 * MIB] ^= 1;
	ck_bytes(data(c) + half, MIB, 0x11);
	a = new_filled(8 * MIB, 0, 2);
	must(memcmp(data(c), data(a), half) == 0);
	must(memcmp(data(c) + half + MIB, data(a) + half + MIB,
	            8 * MIB - half - MIB) == 0);
	ck_bytes(data(b), 8 * MIB, 0x22);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(c);
}
END_TEST

/* ---- Random programs ------------------------------------------------------------ */

enum { STORAGES = 5, MOST = 5 * 1024 * 1024 };

struct pair {
	struct cow_storage *storage;
	unsigned char *bytes;
	size_t size;
};

static uint64_t state;

static size_t number(size_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(state >> 33) % below;
}

/* Page aligned mostly, and a little off at times. */
static size_t place_in(size_t below)
{
	size_t n = number(below + 1);

	return number(4) ? n / PAGE * PAGE : n;
}

static void check(struct pair *p)
{
	if (!p->storage)
		return;
	if (memcmp(data(p->storage), p->bytes, p->size) != 0) {
		size_t i = 0;

		while (data(p->storage)[i] == p->bytes[i])
			i++;
		ck_abort_msg("byte %zu of %zu differs", i, p->size);
	}
}

static void make(struct pair *p)
{
	p->size = (1 + number(MOST / PAGE)) * PAGE - (number(3) ? 0 : number(PAGE));
	p->storage = new_filled(p->size, 0, (unsigned)number(1000));
	p->bytes = malloc(p->size);
	memcpy(p->bytes, data(p->storage), p->size);
}

static void drop(struct pair *p)
{
	cow_storage_unref(p->storage);
	free(p->bytes);
	p->storage = NULL;
	p->bytes = NULL;
}

static void write_some(struct pair *p)
{
	size_t at = place_in(p->size - 1), n = 1 + place_in(p->size - at - 1);
	unsigned char *d;

	if (number(2) && n > 3 * PAGE)
		n = 3 * PAGE;
	d = mut_range(p->storage, at, n, (enum cow_write_hint)number(5));
	memset(d + at, (int)number(256), n);
	memset(p->bytes + at, d[at], n);
}

static void clone_over(struct pair *a, const struct pair *b)
{
	drop(a);
	a->size = b->size;
	a->storage = lazy(b->storage);
	a->bytes = malloc(b->size);
	memcpy(a->bytes, b->bytes, b->size);
}

static void resize(struct pair *a)
{
	size_t n = 1 + number(MOST);

	ok(cow_storage_resize(a->storage, n));
	a->bytes = realloc(a->bytes, n);
	if (n > a->size) {
		memset(mut(a->storage) + a->size, 0, n - a->size);
		memset(a->bytes + a->size, 0, n - a->size);
	}
	a->size = n;
}

/* How many bytes were not copied. */
static size_t copy_some(struct pair *a, const struct pair *b)
{
	size_t at = place_in(a->size - 1), offset = place_in(b->size - 1), n;

	if (number(3))
		offset = offset / PAGE * PAGE + at % PAGE;
	if (offset >= b->size)
		return 0;
	n = a->size - at < b->size - offset ? a->size - at : b->size - offset;
	if (number(3) == 0)
		n = 1 + number(n);
	memcpy(a->bytes + at, b->bytes + offset, n);
	return copy_part(a->storage, at, b->storage, offset, n);
}

/* How many bytes were not copied. */
static size_t step(struct pair *all)
{
	struct pair *a = &all[number(STORAGES)], *b = &all[number(STORAGES)];

	if (!a->storage)
		make(a);
	if (!b->storage)
		make(b);
	switch (number(12)) {
	case 0:
		drop(a);
		return 0;
	case 1:
		if (a != b)
			clone_over(a, b);
		return 0;
	case 2:
		cow_trim();
		return 0;
	case 3:
		resize(a);
		return 0;
	case 4:
	case 5:
	case 6:
		write_some(a);
		return 0;
	default:
		return a == b ? 0 : copy_some(a, b);
	}
}

static void goes_on(void *arg)
{
	struct pair *all = arg;

	for (int i = 0; i < 10; i++)
		step(all);
	for (int k = 0; k < STORAGES; k++) {
		check(&all[k]);
		if (all[k].storage)
			drop(&all[k]);
	}
}

START_TEST(random_programs)
{
	struct pair all[STORAGES] = { { NULL, NULL, 0 } };
	size_t shared = 0;

	state = (uint64_t)_i * 7919 + 1;
	for (int i = 0; i < rounds(300); i++) {
		shared += step(all);
		for (int k = 0; k < STORAGES; k++)
			check(&all[k]);
		if (number(40) == 0) {
			pid_t child = child_start(goes_on, all);

			shared += step(all); /* while it runs */
			child_finish(child);
		}
	}
	must(rounds(100) < 100 || shared > 2 * MIB);
	for (int k = 0; k < STORAGES; k++)
		if (all[k].storage)
			drop(&all[k]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_lazy_parts");
	TCase *tcase = add_case(suite, "lazy parts");

	tcase_add_loop_test(tcase, pages_and_ends, 0, 9);
	tcase_add_test(tcase, beside_it);
	tcase_add_test(tcase, twice);
	tcase_add_test(tcase, thawed_beside_it);
	tcase_add_loop_test(tcase, random_programs, 0, 12);
	return run_suite(suite);
}
