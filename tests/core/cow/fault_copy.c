/* SPDX-License-Identifier: MIT */
/*
 * Lazy copies, with every kernel call failing in turn
 *
 * What must hold is in tests/support/fault/sweep.h. A lazy copy that fails
 * half-way has left the destination in pieces, some of them the source's: the
 * caller then copies, and every byte must be right, now and when both sides are
 * written later.
 */
#include "core/cow/copy.h"
#include "tests/support/fault/sweep.h"

#include <string.h>

/* Whole huge pages: the rest of one would stay mapped after some failures, until
 * its addresses are used again. */
enum { BYTES = 4 << 20 };

static void pair(struct herd *herd)
{
	ck_assert_int_eq(cow_option_set("copies", "lazy"), 0);
	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	sweep_add(herd, HERD_BLOCK, NULL, new_block(BYTES, 0), BYTES);
	sweep_add(herd, HERD_BLOCK_LARGE, NULL, new_block(BYTES, 0), BYTES);
}

/* All of it but `rest` bytes, at most 100. */
static int copy_but(struct herd *herd, size_t rest_bytes)
{
	struct animal *from = &herd->animals[HERD_BLOCK];
	struct animal *to = &herd->animals[HERD_BLOCK_LARGE];
	size_t bytes = from->bytes - rest_bytes;
	unsigned char rest[100];
	bool watch;

	memcpy(rest, to->block + bytes, rest_bytes);
	if (!cow__copy_lazily(to->block, from->block, bytes, 1, &watch))
		memcpy(to->block, from->block, bytes);
	must(!watch);
	must(memcmp(rest, to->block + bytes, rest_bytes) == 0);
	memcpy(to->block + bytes, from->block + bytes, rest_bytes);
	to->seed = from->seed;
	return 0;
}

static int copy(struct herd *herd)
{
	return copy_but(herd, 100);
}

/* The source has copied pages: the next copy needs a layer. */
static void written(struct herd *herd)
{
	struct animal *from = &herd->animals[HERD_BLOCK];

	pair(herd);
	(void)copy(herd);
	fill(from->block, from->bytes / 4, from->seed);
}

/* The destination is a copy, in pieces. */
static void pieces(struct herd *herd)
{
	struct animal *to = &herd->animals[HERD_BLOCK_LARGE];

	written(herd);
	(void)copy(herd);
	fill(to->block, 7 * PAGE, to->seed);
}

static void copied(struct herd *herd)
{
	pair(herd);
	(void)copy_but(herd, 0);
}

static int free_source(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_BLOCK];

	cow_block_free(a->block);
	a->block = NULL;
	return 0;
}

static int free_copy(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_BLOCK_LARGE];

	cow_block_free(a->block);
	a->block = NULL;
	return 0;
}

static int trim(struct herd *herd)
{
	(void)free_copy(herd);
	return cow_trim() < 0 ? -1 : 0;
}

static const struct operation operations[] = {
	{ "copy", pair, copy },
	{ "copy written", written, copy },
	{ "copy to a copy", pieces, copy },
	{ "free source", copied, free_source },
	{ "free copy", copied, free_copy },
	{ "thaw source", copied, trim },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_copy");
	TCase *tcase = add_case(suite, "fault_copy");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	return run_suite(suite);
}
