/* SPDX-License-Identifier: MIT */
/*
 * Zeroed blocks are anonymous memory until the program has forked several times
 */
#include "core/memory/state.h"
#include "core/program/advise.h"
#include "core/storage/block.h"
#include "memfd/pagemap.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (48 * MIB)
enum { FORKS = 16, CHILDREN = 3 };

static unsigned char *zeroed(size_t bytes)
{
	void *p;

	ok(cow__block_zeroed(bytes, &p));
	return p;
}

static enum cow__backing backing(const void *p)
{
	enum cow__backing b;

	cow__engine_lock();
	b = cow__tile_find((uintptr_t)p)->map.backing;
	cow__engine_unlock();
	return b;
}

static bool joined(const void *p)
{
	bool yes;

	cow__engine_lock();
	yes = cow__tile_find((uintptr_t)p)->own.segment != NULL;
	cow__engine_unlock();
	return yes;
}

struct expected {
	unsigned char *block;
	size_t filled;
	uint64_t seed;
};

static void check(const struct expected *e)
{
	ck_pattern(e->block, e->filled, e->seed);
	for (size_t at = e->filled; at < SIZE; at += PAGE)
		ck_assert_int_eq(e->block[at], 0);
}

/* The child sees the bytes of its fork, and writes its own. */
static void reads_and_writes(void *arg)
{
	struct expected *e = arg;

	check(e);
	fill(e->block, e->filled, 99);
	ck_pattern(e->block, e->filled, 99);
	e->block[SIZE - 1] = 1;
}

static void nothing(void *arg)
{
	(void)arg;
}

/* What was written to the most part joins a file, and keeps its bytes whatever comes then. 1: the
 * end of the block is never written. */
START_TEST(full_blocks_join_a_file)
{
	struct expected e = { zeroed(SIZE), _i ? SIZE - 8 * MIB : SIZE, 1 };

	ck_assert_int_eq(backing(e.block), COW__ANON);
	fill(e.block, e.filled, e.seed);
	for (int n = 0; n < FORKS; n++) {
		in_child(reads_and_writes, &e);
		check(&e);
		e.block[n * PAGE] ^= 1;
		e.block[n * PAGE] ^= 1;
	}
	ck_assert(joined(e.block));
	fill(e.block, e.filled, e.seed = 2);
	cow_trim();
	check(&e);
	ck_assert_int_eq(backing(e.block), COW__SHARED);
	in_child(reads_and_writes, &e);
	check(&e);
	cow_block_free(e.block);
	/* Nothing of it is left in the next block. */
	e = (struct expected){ zeroed(SIZE), 0, 0 };
	check(&e);
	cow_block_free(e.block);
}
END_TEST

/* A block of which little was written, and one whose pages of zeros were read, stay as they are. */
START_TEST(empty_blocks_stay_anonymous)
{
	unsigned char *block = zeroed(SIZE);

	fill(block, SIZE / 4, 1);
	for (size_t at = SIZE / 4; at < SIZE; at += PAGE)
		ck_assert_int_eq(((volatile unsigned char *)block)[at], 0);
	for (int n = 0; n < FORKS; n++)
		in_child(nothing, NULL);
	ck_assert_int_eq(backing(block), COW__ANON);
	ck_assert(!joined(block));
	ck_pattern(block, SIZE / 4, 1);
	cow_block_free(block);
}
END_TEST

/* Pages of zeros that were read in a block that joins take no memory when it thaws. */
START_TEST(zeros_stay_zeros)
{
	unsigned char *block = zeroed(SIZE);
	uint64_t full;

	fill(block, SIZE / 2 + 4 * MIB, 1);
	for (size_t at = SIZE / 2 + 4 * MIB; at < SIZE; at += PAGE)
		ck_assert_int_eq(((volatile unsigned char *)block)[at], 0);
	full = memory_held();
	for (int n = 0; n < FORKS; n++)
		in_child(nothing, NULL);
	ck_assert(joined(block));
	cow_trim();
	ck_assert_int_eq(backing(block), COW__SHARED);
	ck_assert_uint_le(memory_held(), full + 4 * MIB);
	ck_pattern(block, SIZE / 2 + 4 * MIB, 1);
	cow_block_free(block);
}
END_TEST

static struct gate end;

static void waits(void *arg)
{
	gate_wait(&end);
	ck_pattern(((struct expected *)arg)->block, SIZE, 1);
}

/* Beside children that live, the forks themselves move it into files of which none has one. */
START_TEST(moves_beside_living_children)
{
	struct expected e = { zeroed(SIZE), SIZE, 1 };
	struct cow_stats stats = { .size = sizeof(stats) };
	pid_t child[CHILDREN];

	gate_make(&end);
	fill(e.block, SIZE, e.seed);
	for (int n = 0; n < 4; n++)
		in_child(nothing, NULL);
	for (int n = 0; n < CHILDREN; n++)
		child[n] = child_start(waits, &e);
	do {
		in_child(reads_and_writes, &e);
		ok(cow_stats_get(&stats));
	} while (stats.bytes_forwarded < SIZE / 2);
	check(&e);
	for (int n = 0; n < CHILDREN; n++)
		gate_open(&end);
	for (int n = 0; n < CHILDREN; n++)
		child_finish(child[n]);
	check(&e);
	gate_free(&end);
	cow_block_free(e.block);
}
END_TEST

static unsigned char *other;
static struct gate freed, gone;

static void frees_the_other(void *arg)
{
	gate_wait(&end);
	cow_block_free(other);
	gate_open(&freed);
	gate_wait(&gone);
	ck_pattern(((struct expected *)arg)->block, SIZE, 1);
}

/* It copies what it has of its parent's files, and then joins files of its own. */
static void leaves_by_copies(void *arg)
{
	struct expected *e = arg;
	pid_t child;

	ok(cow_option_set("border", "copies"));
	ok(cow_family_leave());
	ck_assert(!joined(e->block));
	for (int n = 0; n < 4 * FORKS && !joined(e->block); n++)
		in_child(nothing, NULL);
	ck_assert(joined(e->block));
	cow_trim();
	other = new_block(8 * MIB, 0);
	fill(other, 8 * MIB, 7);
	child = child_start(frees_the_other, e);
	gate_open(&end);
	gate_wait(&freed);
	cow_block_free(e->block);
	cow_trim();
	gate_open(&gone);
	child_finish(child);
	cow_block_free(other);
	_exit(0);
}

/* A block that joins a second file is counted by a word of that file. The first one's number was
 * another block's there: what its holder freed was given back under a child that read it. */
START_TEST(joined_again)
{
	struct expected e = { zeroed(SIZE), SIZE, 1 };
	unsigned char *more = zeroed(SIZE); /* so that the child goes on to look for such blocks */

	gate_make(&end);
	gate_make(&freed);
	gate_make(&gone);
	fill(e.block, SIZE, 1);
	for (int n = 0; n < FORKS && !joined(e.block); n++)
		in_child(nothing, NULL);
	ck_assert(joined(e.block));
	in_child(leaves_by_copies, &e);
	ck_pattern(e.block, SIZE, 1);
	cow_block_free(e.block);
	cow_block_free(more);
	gate_free(&end);
	gate_free(&freed);
	gate_free(&gone);
}
END_TEST

/* The program does to a block that has joined what it may do to any. */
START_TEST(joined_blocks_are_blocks)
{
	struct expected e = { zeroed(SIZE), SIZE, 1 };
	void *p = e.block;

	fill(e.block, SIZE, 1);
	for (int n = 0; n < FORKS && !joined(e.block); n++)
		in_child(nothing, NULL);
	ck_assert(joined(e.block));
	switch (_i) {
	case 0:
		ok(cow_block_resize(p, SIZE + 32 * MIB, &p));
		ck_pattern(p, SIZE, 1);
		memset((char *)p + SIZE, 7, 32 * MIB);
		break;
	case 1:
		ok(cow_block_resize(p, SIZE / 3, &p));
		ck_pattern(p, SIZE / 3, 1);
		break;
	default:
		ok(cow__advise((uintptr_t)e.block + MIB, 8 * MIB, MADV_DONTFORK));
		ok(cow__advise((uintptr_t)e.block + MIB, 8 * MIB, MADV_DOFORK));
		ck_pattern(p, SIZE, 1);
		break;
	}
	in_child(nothing, NULL);
	ck_pattern(p, SIZE / 3, 1);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("zeroed");
	uintptr_t page = (uintptr_t)&suite / PAGE * PAGE;
	struct cow__run run;
	TCase *tcase;

	/* Only a call tells whether the kernel has it. */
	(void)cow__pagemap_made(page, page + PAGE, &run, 1, &page);
	if (!cow__pagemap_has_scan()) {
		puts("skip zeroed no PAGEMAP_SCAN, without which no block joins a file");
		return 0;
	}
	tcase = add_case(suite, "zeroed");
	tcase_add_test(tcase, zeros_stay_zeros);
	tcase_add_test(tcase, joined_again);
	tcase_add_loop_test(tcase, full_blocks_join_a_file, 0, 2);
	tcase_add_test(tcase, empty_blocks_stay_anonymous);
	tcase_add_test(tcase, moves_beside_living_children);
	tcase_add_loop_test(tcase, joined_blocks_are_blocks, 0, 3);
	return run_suite(suite);
}
