/* SPDX-License-Identifier: MIT */
/*
 * Thaw: back to writing in place, chunk by chunk, without losing a byte
 *
 * After a fork a block's pages are frozen, and each write makes a private copy.
 * When the child has gone and nobody else can be writing, the engine may write
 * those copies back into the file and map it shared again. It goes chunk by
 * chunk, so a block can be a patchwork when the next fork comes. Here every mix
 * of densities goes through many such rounds, also with parts that the program
 * emptied. Children look at the end of each. A program with one thread and no
 * children must thaw, or this would test nothing.
 */
#include "core/cow/freeze.h"
#include "core/program/advise.h"
#include "memfd/pagemap.h"
#include "tests/support/support.h"

#include <string.h>
#include <sys/mman.h>

enum { CHUNKS = 8, CHUNK_PAGES = 2 * MIB / PAGE };

static const size_t chunk_bytes = 2 * MIB;
static const size_t bytes = CHUNKS * 2 * MIB;

/* One number a page, in the page's middle; the model has the same. */
static uint32_t model[CHUNKS * CHUNK_PAGES];
static unsigned char *p;
static struct gate to_child, to_parent;

static uint32_t *number(size_t page)
{
	return (uint32_t *)(void *)(p + page * PAGE + PAGE / 2);
}

static void check_model(void)
{
	size_t page;

	for (page = 0; page < COUNT(model); page++)
		must(*number(page) == model[page]);
}

static void write_page(size_t page, uint32_t value)
{
	*number(page) = model[page] = value;
}

/* None, one, some, half, or all pages of each chunk. */
static void write_mix(struct prng *prng, uint32_t value)
{
	static const size_t shares[] = { 0, 1, 8, 100, 128, 129, 300, CHUNK_PAGES };
	size_t c, k, share, first, stride;

	for (c = 0; c < CHUNKS; c++) {
		share = shares[prng_below(prng, COUNT(shares))];
		/* Clustered or spread. */
		stride = prng_below(prng, 2) ? 1 : CHUNK_PAGES / (share + 1) + 1;
		first = prng_below(prng, CHUNK_PAGES);
		for (k = 0; k < share; k++)
			write_page(c * CHUNK_PAGES + (first + k * stride) % CHUNK_PAGES,
			           value + (uint32_t)k);
	}
}

/* Empties some runs of pages, and writes here and there in them again. */
static void empty_some(struct prng *prng)
{
	for (size_t n = prng_below(prng, 6); n; n--) {
		size_t page = prng_below(prng, COUNT(model) - 600);
		size_t count = 1 + prng_below(prng, n % 2 ? 4 : 600);

		ok(cow__advise((uintptr_t)p + page * PAGE, count * PAGE, MADV_DONTNEED));
		memset(&model[page], 0, count * sizeof(*model));
		for (size_t k = 0; k < count; k += 1 + prng_below(prng, 90))
			write_page(page + k, (uint32_t)(n + k));
	}
}

static void make_block(int kind, struct cow_storage **storage)
{
	*storage = NULL;
	if (kind == 0) {
		p = new_block(bytes, COW_BLOCK_ZERO);
	} else {
		*storage = new_storage(bytes, COW_STORAGE_TRANSPARENT |
		                                      COW_STORAGE_ZERO);
		p = expose(*storage);
	}
	memset(model, 0, sizeof(model));
}

static void free_block(struct cow_storage *storage)
{
	check_model();
	if (storage == NULL)
		cow_block_free(p);
	cow_storage_unref(storage);
}

/* Something that calls the allocator, which is when it may thaw. */
static void call_the_library(void)
{
	cow_block_free(new_block(MIB, 0));
	cow_trim();
}

static void looks(void *arg)
{
	(void)arg;
	check_model();
}

static void lives_on(void *arg)
{
	struct prng prng = prng_make((uint64_t)(uintptr_t)arg);

	check_model();
	write_mix(&prng, 70000);
	call_the_library();
	check_model();
	gate_open(&to_parent);
	gate_wait(&to_child);
	check_model();
	write_mix(&prng, 80000);
	empty_some(&prng);
	in_child(looks, NULL);
	check_model();
}

START_TEST(mixes_over_forks)
{
	struct prng prng = prng_make((uint64_t)_i);
	struct cow_storage *storage;
	struct cow_stats before = stats_now(), after;
	uint32_t round;
	pid_t child;

	gate_make(&to_child);
	gate_make(&to_parent);
	make_block(_i % 2, &storage);
	write_mix(&prng, 1);
	for (round = 1; round < (uint32_t)ROUNDS(40); round++) {
		child = child_start(lives_on, (void *)(uintptr_t)round);
		write_mix(&prng, 1000 * round);
		gate_wait(&to_parent);
		check_model();
		if (_i >= 2)
			empty_some(&prng);
		write_mix(&prng, 1000 * round + 500);
		gate_open(&to_child);
		child_finish(child);
		check_model();
		/* Alone again. */
		call_the_library();
		check_model();
		write_mix(&prng, 1000 * round + 700);
		if (_i >= 2)
			empty_some(&prng);
		call_the_library();
		check_model();
		if (round % 3 == 0)
			in_child(looks, NULL);
	}
	after = stats_now();
	ck_assert_uint_gt(after.freezes, before.freezes);
	if (!UNDER_TSAN) /* its own thread is never quiet */
		ck_assert_uint_gt(after.thaws, before.thaws);
	free_block(storage);
	gate_free(&to_child);
	gate_free(&to_parent);
}
END_TEST

/* The same with clones: what one still looks at is not written back. */
START_TEST(mixes_over_clones)
{
	enum { CLONES = 4 };
	struct prng prng = prng_make(100 + (uint64_t)_i);
	struct cow_storage *storage, *clone[CLONES] = { NULL };
	static uint32_t then[CLONES][COUNT(model)];
	size_t page, n;
	uint32_t round;

	make_block(1, &storage);
	for (round = 1; round < (uint32_t)ROUNDS(60); round++) {
		write_mix(&prng, 1000 * round);
		n = prng_below(&prng, CLONES);
		clone[n] = cow_storage_unref(clone[n]);
		if (prng_below(&prng, 3)) {
			clone[n] = lazy(storage);
			memcpy(then[n], model, sizeof(model));
		}
		write_mix(&prng, 1000 * round + 300);
		call_the_library();
		if (round % 8 == 0)
			in_child(looks, NULL);
		check_model();
		for (n = 0; n < CLONES; n++) {
			const unsigned char *q = data(clone[n]);

			if (clone[n] == NULL)
				continue;
			for (page = 0; page < COUNT(model); page++)
				must(memcmp(q + page * PAGE + PAGE / 2,
				            &then[n][page], 4) == 0);
		}
	}
	for (n = 0; n < CLONES; n++)
		cow_storage_unref(clone[n]);
	free_block(storage);
}
END_TEST

static void exits_at_once(void *arg)
{
	(void)arg;
}

/* Pages are written back whole, and what was not written is kept: the first
 * part of each chunk is new, more in each, the rest is old. */
START_TEST(whole_pages_come_back)
{
	static unsigned char old[CHUNKS * 2 * MIB], new[2 * MIB];
	struct cow_stats before = stats_now(), after;
	struct cow_storage *storage;
	size_t c, part;
	unsigned char *chunk;

	make_block(_i, &storage);
	fill(old, bytes, 1);
	fill(new, chunk_bytes, 2);
	memcpy(p, old, bytes);
	in_child(exits_at_once, NULL);
	for (c = 0; c < CHUNKS; c++)
		memcpy(p + c * chunk_bytes, new, c * 75 * KIB + 10 * c);
	call_the_library();
	in_child(exits_at_once, NULL);
	call_the_library();
	after = stats_now();
	if (!UNDER_TSAN) {
		ck_assert_uint_gt(after.thaws, before.thaws);
		ck_assert_uint_gt(after.pages_written_back,
		                  before.pages_written_back);
	}
	if (storage && !UNDER_TSAN) {
		ck_assert_uint_gt(info_of(storage).bytes_written_back, 0);
		ck_assert_uint_le(info_of(storage).bytes_written_back,
		                  (after.pages_written_back -
		                   before.pages_written_back) * PAGE);
	}
	for (c = 0; c < CHUNKS; c++) {
		part = c * 75 * KIB + 10 * c;
		chunk = p + c * chunk_bytes;
		must(memcmp(chunk, new, part) == 0);
		must(memcmp(chunk + part, old + c * chunk_bytes + part,
		            chunk_bytes - part) == 0);
	}
	if (storage == NULL)
		cow_block_free(p);
	cow_storage_unref(storage);
}
END_TEST

/* With the option heal=0 nothing is thawed, at no fork and by no thread. */
START_TEST(never_thawed)
{
	uint64_t thaws = stats_now().bytes_thawed;
	struct cow_storage *storage;

	ck_assert_int_eq(cow_option_set("heal", "0"), 0);
	make_block(0, &storage);
	for (int round = 0; round < 4; round++) {
		in_child(exits_at_once, NULL);
		fill(p, bytes / 2, (unsigned)round);
		call_the_library();
	}
	ck_assert_uint_eq(stats_now().bytes_thawed, thaws);
	ck_pattern(p, bytes / 2, 3);
	cow_block_free(p);
	cow_storage_unref(storage);
}
END_TEST

/* What the program emptied while the block was frozen comes home, too: no page is private
 * then, the block can be cloned again, and the file has no pages of the old content. */
START_TEST(emptied_parts_come_back)
{
	struct cow__run run;
	uintptr_t next;

	make_block(0, &(struct cow_storage *){ NULL });
	for (size_t page = 0; page < COUNT(model); page++)
		write_page(page, (uint32_t)page + 1);
	in_child(exits_at_once, NULL);
	ok(cow__advise((uintptr_t)p + 100 * PAGE, 1000 * PAGE, MADV_DONTNEED));
	ok(cow__advise((uintptr_t)p + 3000 * PAGE, PAGE, MADV_DONTNEED));
	memset(&model[100], 0, 1000 * sizeof(*model));
	model[3000] = 0;
	if (_i) { /* the last one begins in a part without a written page */
		write_page(700, 7);
		write_page(1099, 8);
	}
	ok(cow__advise((uintptr_t)p + 5 * PAGE, PAGE, MADV_DONTDUMP));
	check_model();
	ck_assert_int_gt(cow__pagemap_copied((uintptr_t)p, (uintptr_t)p + bytes, &run, 1,
	                                     &next),
	                 0);
	call_the_library();
	check_model();
	if (!UNDER_TSAN) {
		ck_assert(!cow__tile_find((uintptr_t)p)->map.overlay);
		ck_assert_int_eq(cow__pagemap_copied((uintptr_t)p, (uintptr_t)p + bytes,
		                                     &run, 1, &next),
		                 0);
	}
	/* Frozen again, there is nothing old under it. */
	in_child(looks, NULL);
	empty_some(&(struct prng){ 1 });
	in_child(looks, NULL);
	free_block(NULL);
}
END_TEST

/* What must never thaw: a part that is the program's own. */
START_TEST(own_parts_stay)
{
	void *was;

	make_block(0, &(struct cow_storage *){ NULL });
	for (size_t page = 0; page < COUNT(model); page++)
		write_page(page, (uint32_t)page + 1);
	in_child(exits_at_once, NULL);
	ok(cow__advise((uintptr_t)p + 100 * PAGE, 10 * PAGE, MADV_DONTNEED));
	memset(&model[100], 0, 10 * sizeof(*model));
	was = p + 102 * PAGE;
	ok(cow__own((uintptr_t)was, PAGE, COW__OWN_TO_WATCH));
	write_page(102, 5);
	for (size_t page = 0; page < COUNT(model); page += 7)
		write_page(page, (uint32_t)page + 2);
	call_the_library();
	check_model();
	ck_assert(cow__is_frozen(cow__tile_find((uintptr_t)p)));
	in_child(looks, NULL);
	free_block(NULL);
}
END_TEST

/* ---- In parts ---------------------------------------------------------------- */

enum { LARGE_PAGES = 64 * 512 };

static uint32_t large_model[LARGE_PAGES];

static void large_write(struct cow_storage *s, size_t page, uint32_t value)
{
	p = mut_range(s, page * PAGE + PAGE / 2, sizeof(uint32_t),
	              COW_WRITE_BY_PAGE);
	*number(page) = large_model[page] = value;
}

static void large_check(const struct cow_storage *s)
{
	p = (unsigned char *)data(s);
	for (size_t page = 0; page < LARGE_PAGES; page++)
		must(*number(page) == large_model[page]);
}

static void large_seen_by_child(void *s)
{
	large_check(s);
}

/* Writes all pages; then, beside a clone, one page in eight, and two chunks densely. */
static void large_write_beside_clone(struct cow_storage *s)
{
	struct cow_storage *c;
	size_t page;

	memset(mut(s), 0, (size_t)LARGE_PAGES * PAGE);
	memset(large_model, 0, sizeof(large_model));
	for (page = 0; page < LARGE_PAGES; page++)
		large_write(s, page, (uint32_t)page + 1);
	c = lazy(s);
	for (page = 0; page < LARGE_PAGES; page += 8)
		large_write(s, page, (uint32_t)page + 2);
	for (page = 20 * 512; page < 22 * 512; page++)
		large_write(s, page, (uint32_t)page + 3);
	cow_storage_unref(c);
}

/* Leaves more pieces than the engine looks into. Long runs, so that each becomes a piece. */
static void large_leave_pieces(struct cow_storage *s)
{
	struct cow_storage_info info = { .size = sizeof(info) };
	struct cow_storage *c;

	for (size_t page = 0; page < LARGE_PAGES; page++)
		if (page % 64 < 16)
			*number(page) = large_model[page] = 4;
	c = lazy(s);
	large_write(s, 7, 1);
	must(cow_storage_get_info(s, &info) == 0);
	ck_assert_uint_gt(info.mappings, 64);
	cow_storage_unref(c);
}

/* After the clone is gone, a write of a page does not wait until all pages are written back:
 * each write does a part. `_i`: what comes in the middle of it. */
START_TEST(thawed_in_parts)
{
	struct cow_storage *s = new_storage((size_t)LARGE_PAGES * PAGE, 0);
	struct cow_stats first, now;
	size_t page, turns = 0, steps = 0, written;

	large_write_beside_clone(s);
	/* It begins when the helper thread has done with the pages. */
	first = stats_now();
	while (stats_now().thaws == first.thaws && ++turns < 30000000) {
		now = stats_now();
		large_write(s, turns * 8 % LARGE_PAGES, (uint32_t)turns);
		written = stats_now().pages_written_back -
		          now.pages_written_back;
		must(written < LARGE_PAGES / 8 / 4); /* a part of it */
		if (written == 0 || ++steps != 5)
			continue;
		large_check(s);
		if (_i == 1) {
			large_leave_pieces(s);
			break;
		}
		if (_i == 2)
			in_child(large_seen_by_child, s);
		if (_i == 3)
			(void)mut(s); /* all at once */
	}
	large_check(s);
	if (steps < 5)
		ck_abort_msg("%zu parts in %zu writes", steps, turns);
	now = stats_now();
	/* What stays private is settled: writing it is nobody's business. */
	for (page = 0; page < 100; page++)
		large_write(s, page * 5, (uint32_t)page);
	if (_i != 2) /* the fork froze it once more */
		ck_assert_uint_eq(stats_now().thaws, now.thaws);
	large_check(s);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("thaw");
	TCase *tcase = add_case(suite, "thaw");

	tcase_add_loop_test(tcase, mixes_over_forks, 0, 4);
	tcase_add_loop_test(tcase, mixes_over_clones, 0, 3);
	tcase_add_loop_test(tcase, whole_pages_come_back, 0, 2);
	tcase_add_test(tcase, never_thawed);
	tcase_add_loop_test(tcase, emptied_parts_come_back, 0, 2);
	tcase_add_test(tcase, own_parts_stay);
	tcase_add_loop_test(tcase, thawed_in_parts, 0, 4);
	return run_suite(suite);
}
