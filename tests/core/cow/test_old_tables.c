/* SPDX-License-Identifier: MIT */
/*
 * Page tables that a fork moved away come back when the memory thaws soon
 *
 * Then a program that forks and waits meets no page faults afterwards.
 */
#include "core/cow/old_tables.h"
#include "core/memory/helper.h"
#include "core/program/advise.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { SIZE = 48 * 1024 * 1024, MOST = 16 /* faults */ };

static long faults(void)
{
	struct rusage usage;

	must(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_minflt;
}

static void nothing(void *arg)
{
	(void)arg;
}

/* Writes a byte of each page. Returns how many faults that took. */
static long touch(unsigned char *block, size_t bytes)
{
	long before = faults();

	for (size_t at = 0; at < bytes; at += PAGE)
		block[at]++;
	return faults() - before;
}

/* Small pages or huge ones; the block at a boundary of 2 MiB or not. */
START_TEST(no_faults_after_a_child)
{
	unsigned char *before, *block;
	int soon = 0, few = 0;

	if (_i % 2)
		ok(cow_option_set("collapse", "no"));
	before = new_block(3 * MIB / 2, 0);
	fill(before, 3 * MIB / 2, 1);
	block = _i < 2 ? new_block_apart(SIZE) : new_block(SIZE, 0);
	(void)touch(block, SIZE);
	cow_block_free(before);
	cow__helper_suspend(); /* it would take them down, on a slow machine too soon */
	for (int n = 0; n < 3; n++) {
		in_child(nothing, NULL);
		cow_trim();
		soon += touch(block, SIZE) <= MOST;
	}
	/* Soon is not always: on a busy machine one of them was seen to bring back a part alone. */
	ck_assert_int_ge(soon, 2);
	/* Now and then they don't come back, and the program is seen touching its memory. */
	for (int n = 0; n < 40; n++) {
		in_child(nothing, NULL);
		cow_trim();
		few += touch(block, SIZE) <= MOST;
	}
	ck_assert_int_ge(few, 30);
	cow__helper_resume();
	cow_block_free(block);
}
END_TEST

/* A program that forks and leaves its memory alone has nothing to gain: soon nothing is moved. */
START_TEST(untouched_memory_is_not_moved)
{
	unsigned char *block = new_block(SIZE, 0);

	fill(block, SIZE, 1);
	cow__helper_suspend();
	in_child(nothing, NULL);
	ck_assert(cow__old_tables_pending());
	for (int n = 0; n < 8; n++) {
		cow_trim();
		in_child(nothing, NULL);
	}
	ck_assert(!cow__old_tables_pending());
	cow__helper_resume();
	ck_pattern(block, SIZE, 1);
	cow_block_free(block);
}
END_TEST

/* The kernel has three mappings there after the advice. */
START_TEST(advised_memory_is_not_moved)
{
	unsigned char *block = new_block(SIZE, 0);

	fill(block, SIZE, 1);
	ok(cow__advise((uintptr_t)block + 4 * MIB, MIB, MADV_RANDOM));
	cow__helper_suspend();
	in_child(nothing, NULL);
	ck_assert(!cow__old_tables_pending());
	cow__helper_resume();
	ck_pattern(block, SIZE, 1);
	cow_block_free(block);
}
END_TEST

enum { BLOCKS = 3 };

struct state {
	unsigned char *block[BLOCKS];
	uint64_t seed[BLOCKS];
	size_t bytes[BLOCKS];
};

static struct gate end;

static void check(void *arg)
{
	const struct state *s = arg;

	for (int i = 0; i < BLOCKS; i++)
		ck_pattern(s->block[i], s->bytes[i], s->seed[i]);
}

static void waits(void *arg)
{
	(void)arg;
	gate_wait(&end);
}

static void waits_and_checks(void *arg)
{
	gate_wait(&end);
	check(arg);
}

static void make(struct state *s, int i, struct prng *prng)
{
	s->bytes[i] = 8 * MIB + prng_below(prng, 24 * MIB) / PAGE * PAGE;
	s->block[i] = new_block(s->bytes[i], 0);
	fill(s->block[i], s->bytes[i], s->seed[i] = prng_below(prng, 1000));
}

/* While the child lives, blocks are rewritten, in part or whole, and others take their
 * places. Each side sees its own bytes, however much of the tables came back. */
START_TEST(bytes_stay)
{
	struct prng prng = prng_make((uint64_t)_i);
	struct state s;
	size_t at;

	gate_make(&end);
	for (int i = 0; i < BLOCKS; i++)
		make(&s, i, &prng);
	for (int n = 0; n < 12; n++) {
		pid_t child = child_start(waits_and_checks, &s);
		int i = (int)prng_below(&prng, BLOCKS);
		unsigned char *pages[4] = { NULL };
		size_t where[4];

		switch (prng_below(&prng, 4)) {
		case 0: /* a few pages, and back */
			for (int k = 0; k < 4; k++) {
				where[k] = at = prng_below(&prng, s.bytes[i] / PAGE) * PAGE;
				pages[k] = malloc(PAGE);
				memcpy(pages[k], s.block[i] + at, PAGE);
				memset(s.block[i] + at, 0xee, PAGE);
			}
			break;
		case 1:
			fill(s.block[i], s.bytes[i], ++s.seed[i]);
			break;
		case 2:
			cow_block_free(s.block[i]);
			make(&s, i, &prng);
			break;
		default:
			break;
		}
		if (prng_below(&prng, 2))
			in_child(nothing, NULL);
		gate_open(&end);
		child_finish(child);
		if (prng_below(&prng, 2))
			cow_trim();
		for (int k = 3; k >= 0; k--)
			if (pages[k]) {
				memcpy(s.block[i] + where[k], pages[k], PAGE);
				free(pages[k]);
			}
		check(&s);
	}
	for (int i = 0; i < BLOCKS; i++)
		cow_block_free(s.block[i]);
	gate_free(&end);
}
END_TEST

/* The process may have no more addresses when the memory thaws. */
START_TEST(a_limit_on_addresses)
{
	struct rlimit own, low;
	unsigned char *block = new_block(SIZE, 0);
	pid_t child;

	fill(block, SIZE, 1);
	gate_make(&end);
	must(getrlimit(RLIMIT_AS, &own) == 0);
	low = (struct rlimit){ MIB, own.rlim_max };
	for (int n = 0; n < 4; n++) {
		child = child_start(waits, NULL);
		cow__helper_suspend();
		must(setrlimit(RLIMIT_AS, &low) == 0);
		gate_open(&end);
		child_finish(child);
		(void)cow_trim();
		ck_pattern(block, SIZE, 1);
		must(setrlimit(RLIMIT_AS, &own) == 0);
		cow__helper_resume();
	}
	cow_block_free(block);
	gate_free(&end);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("old_tables");
	TCase *tcase = add_case(suite, "old_tables");

	if (SANITIZED || !page_tables_move()) {
		puts("skip no_faults_after_a_child there is no helper, or page tables don't move");
	} else {
		tcase_add_loop_test(tcase, no_faults_after_a_child, 0, 4);
		tcase_add_test(tcase, untouched_memory_is_not_moved);
		tcase_add_test(tcase, advised_memory_is_not_moved);
		tcase_add_test(tcase, a_limit_on_addresses);
	}
	tcase_add_loop_test(tcase, bytes_stay, 0, 20);
	return run_suite(suite);
}
