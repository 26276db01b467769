/* SPDX-License-Identifier: MIT */
/*
 * What it costs: seals, sparse memory, decay, descriptors, mappings
 *
 * Everything here is asked of the kernel, not of the library. What a memfd holds is read from
 * its inode (st_blocks), since pages that nobody maps any more are in no resident set.
 */
#include "tests/support/herd.h"
#include "tests/support/support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Seals --------------------------------------------------------------- */

struct sealing {
	bool stats;
	int others;
};

static void check_seals(int fd, const char *name, void *arg)
{
	struct sealing *found = arg;
	int seals = fcntl(fd, F_GET_SEALS);

	ck_assert_msg(seals >= 0, "%s: no seals to be had", name);
	ck_assert_msg((seals & F_SEAL_GROW) && (seals & F_SEAL_SHRINK),
	              "%s: seals %#x", name, seals);
	if (strncmp(name, "cowshed-stats", 13) == 0)
		found->stats = true;
	else
		found->others++;
}

START_TEST(every_memfd_is_sealed)
{
	struct sealing found = { 0 };
	struct herd herd;
	struct cow_storage *huge = new_storage(2 * GIB, 0);

	herd_make(&herd, 1);
	each_memfd(check_seals, &found);
	ck_assert(found.stats);
	ck_assert_int_ge(found.others, 1);
	herd_free(&herd);
	cow_storage_unref(huge);
}
END_TEST

static void child_is_sealed_too(void *arg)
{
	struct sealing found = { 0 };

	(void)arg;
	cow_block_free(new_block(3 * MIB, COW_BLOCK_ZERO));
	each_memfd(check_seals, &found);
	ck_assert(found.stats);
}

START_TEST(every_memfd_of_a_child_is_sealed)
{
	struct herd herd;

	herd_make(&herd, 2);
	in_child(child_is_sealed_too, NULL);
	herd_free(&herd);
}
END_TEST

/* ---- Baselines ----------------------------------------------------------- */

struct limit {
	uint64_t most;
	uint64_t seen;
	bool trim;
};

/* Idle programs decay by a helper, others in their own calls: make some. */
static bool holds_less(void *arg)
{
	struct limit *limit = arg;
	struct cow_storage *small = new_storage(100 * KIB, 0);

	cow_storage_unref(small);
	if (limit->trim)
		cow_trim();
	limit->seen = memory_held();
	return limit->seen <= limit->most;
}

static void must_come_to(uint64_t most, bool trim)
{
	struct limit limit = { .most = most, .trim = trim };

	if (!wait_until(holds_less, &limit, 60))
		ck_abort_msg("%llu KiB are held, not %llu", (unsigned long long)limit.seen >> 10,
		             (unsigned long long)most >> 10);
}

/* What the tests themselves, and the engine's bookkeeping, may add. */
enum { NOISE = 3 * 1024 * 1024 };

START_TEST(trim_gives_back)
{
	uint64_t before = memory_held();
	unsigned char *block = new_block(64 * MIB, 0);
	struct cow_storage *storage = new_filled(64 * MIB, 0, 3);

	memset(block, 1, 64 * MIB);
	ck_assert_uint_ge(memory_held(), before + 128 * MIB);
	cow_block_free(block);
	cow_storage_unref(storage);
	cow_trim();
	must_come_to(before + NOISE, true);
	ck_assert_uint_eq(stats_now().bytes_warm, 0);
}
END_TEST

/* Where the last huge page of a block reaches into what the block left of it. */
START_TEST(trim_gives_back_anonymous_memory)
{
	uint64_t before;
	unsigned char *block;

	ok(cow_option_set("backing", "anon"));
	cow_block_free(new_block(KIB, 0));
	before = memory_held();
	for (int i = 0; i < 40; i++) {
		block = new_block(2 * MIB + 4 * KIB, 0);
		memset(block, 1, 2 * MIB + 4 * KIB);
		cow_block_free(block);
		cow_trim();
	}
	ck_assert_uint_le(memory_held(), before + NOISE);
}
END_TEST

/* The same in a memfd, where huge pages come by themselves: a byte in the rest stands for one. */
START_TEST(trim_gives_back_what_lies_behind)
{
	unsigned char *kept = new_block(MIB, 0), *block = new_block(2 * MIB + 4 * KIB, 0);
	uint64_t before = memory_held();

	memset(block, 1, 2 * MIB + MIB);
	cow_block_free(block);
	cow_trim();
	ck_assert_uint_le(memory_held(), before + 100 * KIB);
	cow_block_free(kept);
}
END_TEST

START_TEST(warm_memory_decays)
{
	uint64_t before = memory_held();
	struct cow_storage *storage[40];
	size_t i;

	for (i = 0; i < COUNT(storage); i++)
		storage[i] = new_filled((i + 1) * 100 * KIB, 0, 4);
	for (i = 0; i < COUNT(storage); i++)
		cow_storage_unref(storage[i]);
	must_come_to(before + NOISE, false);
}
END_TEST

/* Each round makes two halves out of the last whole, and a whole out of the last
 * two halves. No more than some pages of it may be fresh, however the sizes
 * divide into pages, and nothing is given back meanwhile. */
static const size_t wholes[] = { 64000000, 32 * MIB, 5 * MIB + 4096 };

START_TEST(halves_become_wholes)
{
	size_t whole = wholes[_i], half = whole / 2;
	unsigned char *kept = new_block(whole, 0), *block[4] = { NULL };
	uint64_t served = 0, recycled = 0;

	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	memset(kept, 1, whole);
	for (int i = 0; i < 12; i++) {
		unsigned char *one = new_block(whole, 0);

		if (i == 4) {
			served = stats_now().bytes_served;
			recycled = stats_now().bytes_recycled;
		}
		memset(one, i, whole);
		for (int k = 0; k < 3; k++) {
			unsigned char *old = block[k];

			block[k] = k ? new_block(half, 0) : one;
			memset(block[k], i, k ? half : whole);
			cow_block_free(old);
		}
	}
	served = stats_now().bytes_served - served;
	recycled = stats_now().bytes_recycled - recycled;
	ck_assert_msg(recycled >= served - served / 32,
	              "%zu of %zu bytes were recycled", (size_t)recycled,
	              (size_t)served);
	for (int k = 0; k < 3; k++)
		cow_block_free(block[k]);
	cow_block_free(kept);
}
END_TEST

START_TEST(herds_leave_nothing)
{
	uint64_t before = memory_held();
	struct herd herd;
	int i;

	for (i = 0; i < 5; i++) {
		herd_make(&herd, 5);
		herd_rewrite(&herd, 6, 1);
		herd_free(&herd);
	}
	must_come_to(before + NOISE, true);
}
END_TEST

static struct gate ready;

static void rewrites_until_killed(void *arg)
{
	struct herd *herd = arg;

	herd_rewrite(herd, 7, 1);
	gate_open(&ready);
	for (;;)
		pause();
}

/* Pages that only a dead child still needed (shadows) come back, and the
 * rest as well when the parent frees. */
START_TEST(killed_child_leaves_nothing)
{
	uint64_t before = memory_held(), alone;
	struct herd herd;
	pid_t child;

	gate_make(&ready);
	herd_make(&herd, 8);
	herd_rewrite(&herd, 9, 1);
	cow_trim();
	alone = memory_held();
	child = child_start(rewrites_until_killed, &herd);
	herd_rewrite(&herd, 10, 1);
	gate_wait(&ready);
	kill(child, SIGKILL);
	must(WIFSIGNALED(child_status(child)));
	herd_check(&herd);
	must_come_to(alone + NOISE, true);
	herd_check(&herd);
	herd_free(&herd);
	must_come_to(before + NOISE, true);
	gate_free(&ready);
}
END_TEST

static void frees_late(void *arg)
{
	struct herd *herd = arg;

	gate_wait(&ready);
	herd_check(herd);
	herd_free(herd);
}

/* Freed by the parent first, by the child later. */
START_TEST(freed_by_both)
{
	uint64_t before = memory_held();
	struct herd herd;
	pid_t child;

	gate_make(&ready);
	herd_make(&herd, 11);
	child = child_start(frees_late, &herd);
	herd_free(&herd);
	cow_trim();
	gate_open(&ready);
	child_finish(child);
	must_come_to(before + NOISE, true);
	gate_free(&ready);
}
END_TEST

/* ---- Sparse memory ------------------------------------------------------- */

/* At most twice what was touched, and a small constant, is ever committed. */
START_TEST(sparse_stays_sparse)
{
	enum { TOUCHES = 64 };
	size_t bytes = 16 * GIB, at;
	uint64_t before = memory_held();
	struct cow_storage *storage = NULL;
	unsigned char *block = NULL, *p;

	switch (_i) {
	case 0:
		storage = new_storage(bytes, 0);
		p = mut(storage);
		break;
	case 1:
		storage = new_storage(bytes, COW_STORAGE_ZERO);
		p = mut_range(storage, 0, bytes, COW_WRITE_SPARSE);
		break;
	case 2:
		storage = new_storage(bytes, COW_STORAGE_TRANSPARENT);
		p = expose(storage);
		break;
	default:
		p = block = new_block(bytes, COW_BLOCK_ZERO);
	}
	for (at = 0; at < bytes; at += bytes / TOUCHES)
		p[at] = 1;
	/* Time for a helper that commits ahead, if there is one. */
	must_come_to(before + 2 * TOUCHES * PAGE + 32 * MIB, false);
	for (at = 0; at < 100; at++)
		(void)holds_less(&(struct limit){ 0 });
	ck_assert_uint_le(memory_held(),
	                  before + 2 * TOUCHES * PAGE + 32 * MIB);
	for (at = 0; at < bytes; at += bytes / TOUCHES)
		must(p[at] == 1);
	cow_storage_unref(storage);
	cow_block_free(block);
}
END_TEST

/* Lazy clones and views of large storages cost what is written. */
START_TEST(clones_stay_sparse)
{
	enum { CLONES = 100 };
	struct cow_storage *a = new_filled(64 * MIB, 0, 12), *clone[CLONES];
	uint64_t before = memory_held();
	int i;

	for (i = 0; i < CLONES; i++) {
		clone[i] = lazy(a);
		if (i % 2)
			mut_range(clone[i], (size_t)i * PAGE, 1,
			          COW_WRITE_SPARSE)[(size_t)i * PAGE] = 1;
	}
	ck_assert_uint_le(memory_held(), before + CLONES * PAGE + NOISE);
	for (i = 0; i < CLONES; i++)
		cow_storage_unref(clone[i]);
	cow_storage_unref(a);
}
END_TEST

/* ---- Many ---------------------------------------------------------------- */

enum { MANY = 100000 };

static void check_budgets(void)
{
	struct footprint now = footprint_now();

	ck_assert_int_lt(now.fds, 64);
	ck_assert_int_lt(now.maps, 32000);
}

START_TEST(a_hundred_thousand_small_ones)
{
	static struct cow_storage *all[MANY];
	uint32_t flags = _i ? COW_STORAGE_TRANSPARENT : 0;
	size_t i;

	for (i = 0; i < MANY; i++) {
		all[i] = new_storage(PAGE, flags);
		memcpy(mut(all[i]), &i, sizeof(i));
	}
	check_budgets();
	for (i = 0; i < MANY; i++)
		must(memcmp(data(all[i]), &i, sizeof(i)) == 0);
	/* Every other one goes: holes everywhere. */
	for (i = 0; i < MANY; i += 2)
		all[i] = cow_storage_unref(all[i]);
	cow_trim();
	check_budgets();
	for (i = 1; i < MANY; i += 2) {
		must(memcmp(data(all[i]), &i, sizeof(i)) == 0);
		cow_storage_unref(all[i]);
	}
}
END_TEST

/* A page written in each of many clones: mappings are counted, and near the
 * limit the engine copies instead. */
START_TEST(many_views)
{
	enum { VIEWS = 20000 };
	static struct cow_storage *view[VIEWS];
	struct cow_storage *a = new_filled(MIB, 0, 13);
	size_t i, at;

	for (i = 0; i < VIEWS; i++) {
		view[i] = lazy(a);
		at = i * 97 % MIB;
		mut_range(view[i], at, 1, COW_WRITE_SPARSE)[at] = 0x5e;
		if (i >= 2000 && i % 2)
			view[i] = cow_storage_unref(view[i]);
		if (i >= 2000 && i % 2 == 0)
			view[i - 2000] = cow_storage_unref(view[i - 2000]);
	}
	check_budgets();
	for (i = 0; i < VIEWS; i++) {
		if (view[i] == NULL)
			continue;
		must(data(view[i])[i * 97 % MIB] == 0x5e);
		cow_storage_unref(view[i]);
	}
	ck_pattern(data(a), MIB, 13);
	cow_storage_unref(a);
}
END_TEST

/* Over and over: what one round leaves, a thousand would not hide. */
START_TEST(nothing_piles_up)
{
	struct footprint before = footprint_now(), after;
	struct cow_storage *a, *b;
	unsigned char *block;
	int i;

	for (i = 0; i < ROUNDS(3000); i++) {
		a = new_storage(600 * KIB, i % 2 ? COW_STORAGE_TRANSPARENT : 0);
		mut(a)[5] = 1;
		b = lazy(a);
		mut_range(b, 0, 1, (enum cow_write_hint)(i % 5))[0] = 2;
		cow_storage_unref(a);
		mut(b)[6] = 3;
		cow_storage_unref(b);
		block = new_block((size_t)(i % 50 + 1) * 20 * KIB, 0);
		block[0] = 1;
		cow_block_free(block);
	}
	cow_trim();
	after = footprint_now();
	ck_assert_int_le(after.fds, before.fds + SLACK_FDS);
	ck_assert_int_le(after.maps, before.maps + SLACK_MAPS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory");
	TCase *tcase = add_case(suite, "memory");

	tcase_add_test(tcase, every_memfd_is_sealed);
	tcase_add_test(tcase, every_memfd_of_a_child_is_sealed);
	tcase_add_test(tcase, trim_gives_back);
	tcase_add_test(tcase, trim_gives_back_anonymous_memory);
	tcase_add_test(tcase, trim_gives_back_what_lies_behind);
	tcase_add_test(tcase, warm_memory_decays);
	tcase_add_loop_test(tcase, halves_become_wholes, 0, COUNT(wholes));
	tcase_add_test(tcase, herds_leave_nothing);
	tcase_add_test(tcase, killed_child_leaves_nothing);
	tcase_add_test(tcase, freed_by_both);
	if (memory_granted(16 * GIB))
		tcase_add_loop_test(tcase, sparse_stays_sparse, 0, 4);
	else
		puts("skip sparse_stays_sparse the kernel refuses 16 GiB at once");
	tcase_add_test(tcase, clones_stay_sparse);
	tcase_add_loop_test(tcase, a_hundred_thousand_small_ones, 0, 2);
	tcase_add_test(tcase, many_views);
	tcase_add_test(tcase, nothing_piles_up);
	return run_suite(suite);
}
