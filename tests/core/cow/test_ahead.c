/* SPDX-License-Identifier: MIT */
/*
 * Copying ahead: what is written after the mark comes home as well
 *
 * The steps that the helper does are made by hand here, in every order with what a
 * program may do between them: it writes marked pages and others, empties parts, clones,
 * forks, or has shadows given back. After each slice every page must have what was last
 * written to it. On a kernel that can't watch memory nothing is copied ahead, and the
 * rest must hold as well.
 */
#include "core/base/mutex.h"
#include "core/cow/ahead.h"
#include "core/cow/heal.h"
#include "core/cow/shadow.h"
#include "core/cow/thaw.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "core/program/advise.h"
#include "memfd/wait.h"
#include "memfd/watch.h"
#include "quiet/park.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNKS = 6, PAGES = CHUNKS * 512 };

static const size_t bytes = (size_t)PAGES * PAGE;
static const uint64_t second = 1000000000;

static uint32_t model[PAGES];
static unsigned char *p;

static uint32_t *number(size_t page)
{
	return (uint32_t *)(void *)(p + page * PAGE + PAGE / 2);
}

static void check_model(void)
{
	for (size_t page = 0; page < PAGES; page++)
		must(*number(page) == model[page]);
}

static void write_page(size_t page, uint32_t value)
{
	*number(page) = model[page] = value;
}

static void write_pages(size_t from, size_t to, uint32_t value)
{
	for (size_t page = from; page < to; page++)
		write_page(page, value);
}

/* Runs of pages, from some to half of all. */
static void write_some(struct prng *prng)
{
	static uint32_t value = 1000;
	size_t runs = 1 + prng_below(prng, 40);

	while (runs--) {
		size_t page = prng_below(prng, PAGES), n = 1 + prng_below(prng, 90);

		for (; n && page < PAGES; n--, page += 1 + prng_below(prng, 2))
			write_page(page, ++value);
	}
}

static void looks(void *arg)
{
	(void)arg;
	check_model();
}

static void exits_at_once(void *arg)
{
	(void)arg;
}

static unsigned copy_ahead(void)
{
	int n;

	cow__engine_lock();
	n = cow__ahead_prepare(10 * second);
	cow__engine_unlock();
	must(n >= 0);
	return (unsigned)n;
}

static void heal(uint64_t ns)
{
	cow__engine_lock();
	cow__heal(ns);
	cow__engine_unlock();
}

static void give_shadows_back(void)
{
	static uint64_t later;

	later += 100 * second;
	cow__engine_lock();
	cow__shadows_release(cow__now() + later, false);
	cow__engine_unlock();
}

static void empty_some(struct prng *prng)
{
	size_t page = prng_below(prng, PAGES - 100), n = 1 + prng_below(prng, 100);

	ok(cow__advise((uintptr_t)p + page * PAGE, n * PAGE, MADV_DONTNEED));
	memset(&model[page], 0, n * sizeof(*model));
}

/* What may come between the mark and the slice. */
static void something(struct prng *prng, struct cow_storage *storage)
{
	struct cow_storage *clone;

	switch (prng_below(prng, 8)) {
	case 0:
		empty_some(prng);
		break;
	case 1:
		in_child(looks, NULL);
		break;
	case 2:
		give_shadows_back();
		break;
	case 3:
		if (!storage)
			break;
		clone = lazy(storage);
		write_some(prng);
		heal(1000000);
		cow_storage_unref(clone);
		break;
	case 4:
		heal(UINT64_MAX); /* what is ready is shared already */
		break;
	default:
		write_some(prng);
	}
}

static bool nothing_is_passed_over(void *unused)
{
	(void)unused;
	for (size_t page = 0; page < PAGES; page += 512)
		if (cow__ahead_passed((uintptr_t)p + page * PAGE))
			return false;
	return true;
}

/* A helper ran before these tests ended it. What it remembers may mean memory at these
 * addresses: chunks that it passed over, and where it stopped. */
static void make_it_forget(void)
{
	ck_assert(wait_until(nothing_is_passed_over, NULL, 10));
	ck_assert_uint_eq(copy_ahead(), 0); /* the next search begins at the first tile */
}

static void make(int kind, struct cow_storage **ret)
{
	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	*ret = kind ? new_storage(bytes, COW_STORAGE_TRANSPARENT | COW_STORAGE_ZERO)
	            : NULL;
	p = *ret ? expose(*ret) : new_block(bytes, COW_BLOCK_ZERO);
	memset(model, 0, sizeof(model));
	for (size_t page = 0; page < PAGES; page++)
		write_page(page, (uint32_t)page + 1);
	cow__engine_lock();
	cow__watch_keep();
	cow__engine_unlock();
	make_it_forget();
}

static void drop(struct cow_storage *storage)
{
	check_model();
	if (!storage)
		cow_block_free(p);
	cow_storage_unref(storage);
	cow__watch_forget();
}

/* `_i`: a block, or a storage. */
START_TEST(in_every_order)
{
	struct prng prng = prng_make(300 + (uint64_t)_i);
	struct cow_storage *storage;
	unsigned chunks = 0;

	make(_i % 2, &storage);
	for (int round = 0; round < ROUNDS(60); round++) {
		in_child(looks, NULL);
		write_some(&prng);
		chunks += copy_ahead();
		check_model();
		for (uint64_t n = prng_below(&prng, 4); n; n--)
			something(&prng, storage);
		check_model();
		heal(prng_below(&prng, 2) ? 300000 : 30000000);
		check_model();
		if (prng_below(&prng, 3) == 0) {
			copy_ahead();
			something(&prng, storage);
			heal(UINT64_MAX);
			check_model();
		}
	}
	if (cow__ahead_usable())
		ck_assert_uint_gt(chunks, 0);
	drop(storage);
}
END_TEST

/* A slice copies only what was written since: one page of two chunks. */
START_TEST(little_is_left)
{
	struct cow_storage *storage;
	uint64_t before;

	make(0, &storage);
	in_child(looks, NULL);
	write_pages(100, 900, 5);
	if (copy_ahead() == 0) {
		must(!cow__ahead_usable());
		drop(storage);
		return;
	}
	write_page(700, 6);
	write_page(1000, 7); /* a chunk that was copied ahead, a page that was not */
	before = stats_now().pages_written_back;
	heal(UINT64_MAX);
	if (!UNDER_TSAN) {
		ck_assert_uint_eq(stats_now().pages_written_back, before + 2);
		ck_assert(cow__tile_find((uintptr_t)p)->map.backing == COW__SHARED);
	}
	drop(storage);
}
END_TEST

/* More chunks than are made ready at a time, each in a block of its own. */
START_TEST(many_blocks)
{
	enum { BLOCKS = 40 };
	const size_t each = 2 * MIB;
	unsigned char *block[BLOCKS];
	uint64_t shared = 0;
	unsigned n;

	ok(cow_option_set("helper", "no"));
	for (int i = 0; i < BLOCKS; i++) {
		block[i] = new_block(each, 0);
		fill(block[i], each, 1);
	}
	in_child(exits_at_once, NULL);
	for (int i = 0; i < BLOCKS; i++)
		fill(block[i], each / 2, (unsigned)i + 2);
	cow__engine_lock();
	cow__watch_keep();
	cow__engine_unlock();
	n = copy_ahead();
	must(n <= COW__AHEAD_MOST && (n > 0 || !cow__ahead_usable()));
	ck_assert_uint_eq(copy_ahead(), n);
	heal(UINT64_MAX);
	for (int i = 0; i < BLOCKS; i++) {
		shared += cow__tile_find((uintptr_t)block[i])->map.backing == COW__SHARED;
		ck_pattern(block[i], each / 2, (unsigned)i + 2);
		cow_block_free(block[i]);
	}
	if (!UNDER_TSAN)
		ck_assert_uint_eq(shared, BLOCKS);
	cow__watch_forget();
}
END_TEST

static void *wants_the_lock(void *unused)
{
	cow__engine_lock();
	cow__engine_unlock();
	return unused;
}

/* A helper that another thread waits for copies little of the chunk that it marked. */
static void copy_little(void)
{
	pthread_t thread;

	cow__engine_lock();
	must(pthread_create(&thread, NULL, wants_the_lock, NULL) == 0);
	while (!cow__mutex_wanted(&cow__engine.lock))
		sched_yield();
	must(cow__ahead_prepare(10 * second) >= 0);
	cow__engine_unlock();
	must(pthread_join(thread, NULL) == 0);
}

static atomic_bool over;

static void *runs(void *unused)
{
	while (!atomic_load(&over))
		sched_yield();
	return unused;
}

static void fork_beside_a_thread(void) /* it heals nothing, as a thread runs */
{
	pthread_t thread;

	atomic_store(&over, false);
	must(pthread_create(&thread, NULL, runs, NULL) == 0);
	in_child(exits_at_once, NULL);
	atomic_store(&over, true);
	must(pthread_join(thread, NULL) == 0);
}

/* The second half of a chunk is ready, and is written. Then all of the chunk is marked
 * anew, and only its beginning is copied. */
START_TEST(marked_anew)
{
	uintptr_t at;
	size_t copied;

	ck_assert_int_eq(cow_option_set("backing", "memfd"), 0);
	make(0, &(struct cow_storage *){ NULL });
	in_child(exits_at_once, NULL);
	write_pages(0, 512, 5);
	at = (uintptr_t)p;
	cow__engine_lock();
	must(cow__thaw_tile_step(cow__tile_find(at), &at, at + 256 * PAGE, SIZE_MAX,
	                         &copied) == 0);
	cow__engine_unlock();
	must(copy_ahead() == 1 || !cow__ahead_usable());
	fork_beside_a_thread();
	write_pages(0, 512, 6);
	copy_little();
	/* The kernel may count a thread for a moment that was joined. */
	do
		heal(UINT64_MAX);
	while (!UNDER_TSAN && cow__tile_find((uintptr_t)p)->map.backing != COW__SHARED);
	check_model();
	cow_block_free(p);
	cow__watch_forget();
}
END_TEST

/* A chunk was ready when its block was freed. A shorter block is there now. */
START_TEST(shorter_block)
{
	const size_t shorter = 3 * MIB + 5 * PAGE;
	unsigned char *block;

	ck_assert_int_eq(cow_option_set("backing", "memfd"), 0);
	make(0, &(struct cow_storage *){ NULL });
	in_child(exits_at_once, NULL);
	write_pages(0, PAGES, 5);
	must(copy_ahead() > 0 || !cow__ahead_usable());
	cow_block_free(p);
	block = new_block(shorter, 0);
	must(block == p);
	fill(block, shorter, 1);
	in_child(exits_at_once, NULL);
	fill(block, shorter, 2);
	heal(UINT64_MAX);
	ck_pattern(block, shorter, 2);
	if (!UNDER_TSAN)
		ck_assert(cow__tile_find((uintptr_t)block)->map.backing == COW__SHARED);
	cow_block_free(block);
	cow__watch_forget();
}
END_TEST

/* A device may write without page faults what it took hold of before the mark. */
START_TEST(under_io)
{
	char path[] = "ahead-XXXXXX";
	struct cow_storage *storage;
	bool pinned;
	int fd;

	make(0, &storage);
	in_child(exits_at_once, NULL);
	/* Before the writes: the helper may come first, and copies nothing either. */
	fd = mkstemp(path);
	must(fd >= 0 && unlink(path) == 0);
	pinned = fcntl(fd, F_SETFL, O_DIRECT) == 0;
	write_pages(100, 900, 5);
	if (pinned && cow__ahead_usable()) {
		cow__engine_lock();
		ck_assert_int_eq(cow__ahead_prepare(10 * second), -EBUSY);
		cow__engine_unlock();
	}
	close(fd);
	must(copy_ahead() > 0 || !cow__ahead_usable());
	heal(UINT64_MAX);
	drop(storage);
}
END_TEST

/* The program closed the descriptor: the marks are gone with it, and nothing is lost. */
START_TEST(descriptor_lost)
{
	struct cow_storage *storage;

	make(0, &storage);
	in_child(looks, NULL);
	write_pages(100, 900, 5);
	copy_ahead();
	cow__watch_forget();
	write_pages(200, 400, 6);
	heal(UINT64_MAX);
	drop(storage);
}
END_TEST

static bool comes_back(void *unused)
{
	(void)unused;
	return copy_ahead() == 1;
}

/* The kernel may write a part of one chunk at any time. That chunk stays private. It is not
 * copied again and again: the others come first, and it comes back later. */
START_TEST(written_by_the_kernel)
{
	struct cow__park_thread *record = cow__park_register((uintptr_t)pthread_self());
	struct cow_storage *storage;
	uint64_t before = 0;
	unsigned n = 0;

	must(record);
	make(0, &storage);
	record->sequences.from = (uintptr_t)p + bytes / 2;
	record->sequences.to = record->sequences.from + 32;
	/* A round that takes too long says nothing. */
	for (int i = 0; i < 50 && cow__now() - before >= COW__AHEAD_PASSED_NS; i++) {
		in_child(exits_at_once, NULL);
		write_pages(0, PAGES, 7);
		copy_ahead();
		before = cow__now();
		heal(UINT64_MAX);
		n = copy_ahead();
	}
	must(n == 0 || cow__now() - before >= COW__AHEAD_PASSED_NS);
	if (cow__ahead_usable())
		must(wait_until(comes_back, NULL, 30));
	record->sequences = (struct cow__park_range){ 0, 0 };
	heal(UINT64_MAX);
	if (!UNDER_TSAN)
		ck_assert(cow__tile_find((uintptr_t)p)->map.backing == COW__SHARED);
	drop(storage);
}
END_TEST

/* A kernel that can't watch. */
START_TEST(without_it)
{
	struct cow_storage *storage;

	cow__watch_use(false);
	make(_i, &storage);
	in_child(looks, NULL);
	write_pages(100, 900, 5);
	ck_assert_uint_eq(copy_ahead(), 0);
	heal(UINT64_MAX);
	if (!UNDER_TSAN)
		ck_assert(cow__tile_find((uintptr_t)p)->map.backing == COW__SHARED);
	drop(storage);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ahead");
	TCase *tcase = add_case(suite, "ahead");

	tcase_add_loop_test(tcase, in_every_order, 0, 4);
	tcase_add_test(tcase, little_is_left);
	tcase_add_test(tcase, many_blocks);
	tcase_add_test(tcase, marked_anew);
	tcase_add_test(tcase, shorter_block);
	tcase_add_test(tcase, under_io);
	tcase_add_test(tcase, descriptor_lost);
	tcase_add_test(tcase, written_by_the_kernel);
	tcase_add_loop_test(tcase, without_it, 0, 2);
	return run_suite(suite);
}
