/* SPDX-License-Identifier: MIT */
/*
 * Counters: they move as documented, and can be read from outside, live
 */
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Counters only the test itself moves: `name` grew by exactly `by`. */
#define grew(name, by)                                                         \
	ck_assert_msg(after.name - before.name == (by),                        \
	              #name ": %llu, then %llu",                               \
	              (unsigned long long)before.name,                         \
	              (unsigned long long)after.name)

START_TEST(live_bytes_and_storages)
{
	struct cow_stats before = stats_now(), after;
	struct cow_storage *storage = new_storage(3 * MIB, 0);
	unsigned char *block;

	after = stats_now();
	grew(storages_live, 1);
	ck_assert_uint_ge(after.bytes_live, before.bytes_live + 3 * MIB);
	ck_assert_uint_ge(after.bytes_served, before.bytes_served + 3 * MIB);
	ck_assert_uint_ge(after.bytes_peak, after.bytes_live);
	before = after;
	block = new_block(2 * MIB, 0);
	after = stats_now();
	grew(blocks_served, 1);
	grew(blocks_live, 1);
	ck_assert_uint_ge(after.bytes_live, before.bytes_live + 2 * MIB);
	before = after;
	cow_block_free(block);
	cow_storage_unref(storage);
	after = stats_now();
	grew(storages_live, (uint64_t)-1);
	ck_assert_uint_le(after.bytes_live, before.bytes_live - 5 * MIB);
	ck_assert_uint_eq(after.bytes_served, before.bytes_served);
	ck_assert_uint_ge(after.bytes_peak, before.bytes_live);
}
END_TEST

static void ends_at_once(void *arg)
{
	(void)arg;
}

/* A fork closes the gap behind a block, which becomes a part of it. */
START_TEST(live_is_never_more_than_served)
{
	unsigned char *a = new_block(2 * MIB + 3 * PAGE, 0), *b = new_block(2 * MIB, 0);
	struct cow_stats s;

	for (int i = 0; i < 3; i++) {
		memset(a, i, 2 * MIB + 3 * PAGE);
		memset(b, i, 2 * MIB);
		in_child(ends_at_once, NULL);
		s = stats_now();
		ck_assert_uint_ge(s.bytes_served, s.bytes_live);
	}
	cow_block_free(a);
	cow_block_free(b);
}
END_TEST

static void lives_on(void *arg)
{
	struct cow_stats s = stats_now();
	unsigned char *own;

	ck_assert_uint_ge(s.bytes_live, 2 * MIB);
	ck_assert_uint_eq(s.bytes_served, s.bytes_live);
	ck_assert_uint_eq(s.bytes_inherited, s.bytes_live);
	ck_assert_uint_eq(s.blocks_served, s.blocks_live);
	ck_assert_uint_eq(s.blocks_inherited, s.blocks_live);
	own = new_block(3 * MIB, 0);
	cow_block_free(arg);
	s = stats_now();
	ck_assert_uint_ge(s.bytes_served, s.bytes_inherited + 3 * MIB);
	ck_assert_uint_ge(s.bytes_served, s.bytes_live);
	ck_assert_uint_eq(s.blocks_served, s.blocks_inherited + 1);
	in_child(ends_at_once, NULL);
	cow_block_free(own);
}

START_TEST(live_of_a_child_is_never_more_than_served)
{
	unsigned char *block = new_block(2 * MIB, 0);

	memset(block, 1, 2 * MIB);
	in_child(lives_on, block);
	ck_assert_uint_eq(stats_now().bytes_inherited, 0);
	cow_block_free(block);
}
END_TEST

START_TEST(mappings_of_the_first_block)
{
	/* One is the window's. */
	unsigned char *block = new_block(2 * MIB, 0);

	ck_assert_uint_ge(stats_now().mappings, 2);
	cow_block_free(block);
}
END_TEST

START_TEST(clones_and_materializations)
{
	struct cow_storage *a = new_filled(4 * MIB, 0, 1), *b, *c;
	struct cow_stats before = stats_now(), after;

	b = lazy(a);
	c = lazy(b);
	after = stats_now();
	grew(clones_lazy, 2);
	grew(clones_eager, 0);
	grew(bytes_copied, 0);
	before = after;
	mut_range(b, 0, 1, COW_WRITE_BY_PAGE);
	after = stats_now();
	grew(materialized_page, 1);
	grew(materialized_copy, 0);
	grew(bytes_copied, 0);
	before = after;
	mut_range(c, 0, 1, COW_WRITE_BY_COPY);
	after = stats_now();
	grew(materialized_page, 0);
	grew(materialized_copy, 1);
	grew(bytes_copied, 4 * MIB);
	grew(steals, 0);
	cow_storage_unref(b);
	before = stats_now();
	mut(a);
	after = stats_now();
	grew(steals, 1);
	grew(bytes_copied, 0);
	before = after;
	cow_storage_unref(c);
	ok(cow_storage_clone(a, &c));
	after = stats_now();
	grew(clones_eager, 1);
	grew(bytes_copied, 4 * MIB);
	cow_storage_unref(a);
	cow_storage_unref(c);
}
END_TEST

/* What an eager library would have copied: each clone, written or not. */
START_TEST(bytes_not_copied)
{
	struct cow_storage *a = new_filled(4 * MIB, 0, 1), *b, *c;
	struct cow_stats before = stats_now(), after;

	b = lazy(a);
	c = lazy(a);
	mut_range(c, 0, 1, COW_WRITE_BY_PAGE);
	cow_storage_unref(b);
	cow_storage_unref(c);
	cow_storage_unref(a);
	after = stats_now();
	grew(bytes_copied, 0);
	ck_assert_uint_ge(after.bytes_not_copied,
	                  before.bytes_not_copied + 8 * MIB);
}
END_TEST

START_TEST(recycling)
{
	struct cow_storage *storage = new_filled(8 * MIB, 0, 2);
	struct cow_stats before, after;

	cow_storage_unref(storage);
	before = stats_now();
	ck_assert_uint_ge(before.bytes_warm, 1);
	storage = new_storage(8 * MIB, 0);
	after = stats_now();
	ck_assert_uint_ge(after.bytes_recycled, before.bytes_recycled + 1);
	ck_assert_uint_lt(after.bytes_warm, before.bytes_warm);
	fill(mut(storage), 8 * MIB, 3);
	cow_storage_unref(storage);
	before = stats_now();
	ck_assert_int_eq(cow_trim(), 1);
	after = stats_now();
	ck_assert_uint_ge(after.bytes_returned, before.bytes_returned + 1);
	ck_assert_uint_eq(after.bytes_warm, 0);
	ck_assert_int_eq(cow_trim(), 0);
}
END_TEST

START_TEST(freezes_and_forks)
{
	struct cow_storage *a = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 4);
	struct cow_stats before = stats_now(), after;
	struct cow_storage *b = lazy(a);

	after = stats_now();
	grew(clones_paged, 1);
	ck_assert_uint_ge(after.freezes, before.freezes + 1);
	ck_assert_uint_ge(after.bytes_frozen, before.bytes_frozen + 4 * MIB);
	ck_assert_uint_eq(info_of(a).frozen, 1);
	cow_storage_unref(b);
	cow_storage_unref(a);
}
END_TEST

static void nothing(void *arg)
{
	(void)arg;
}

START_TEST(forks_are_counted)
{
	struct cow_storage *a = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 5);
	struct cow_stats before = stats_now(), after;
	int i;

	for (i = 0; i < 5; i++)
		in_child(nothing, NULL);
	after = stats_now();
	grew(forks, 5);
	ck_assert_uint_gt(after.fork_ns_last, 0);
	ck_assert_uint_ge(after.fork_ns_max, after.fork_ns_last);
	ck_assert_uint_ge(after.fork_ns_total, after.fork_ns_max);
	cow_storage_unref(a);
}
END_TEST

START_TEST(fallbacks_have_names)
{
	int i, j;

	for (i = 0; i <= COW_FALLBACK_PROCESS; i++) {
		const char *name = cow_fallback_name((enum cow_fallback)i);

		ck_assert_ptr_nonnull(name);
		ck_assert_str_ne(name, "");
		for (j = 0; j < i; j++)
			ck_assert_str_ne(name, cow_fallback_name(
			                               (enum cow_fallback)j));
	}
	/* The last one; who adds another writes it here. */
	ck_assert_ptr_null(cow_fallback_name((enum cow_fallback)i));
}
END_TEST

/* An old program knows fewer members; no more than those are written. */
START_TEST(shorter_structs)
{
	struct cow_stats stats;

	memset(&stats, 0x77, sizeof(stats));
	stats.size = offsetof(struct cow_stats, bytes_served);
	ok(cow_stats_get(&stats));
	ck_assert_uint_eq(stats.bytes_live, stats_now().bytes_live);
	ck_bytes(&stats.bytes_served,
	         sizeof(stats) - offsetof(struct cow_stats, bytes_served),
	         0x77);
}
END_TEST

/* ---- From outside -------------------------------------------------------- */

static struct gate to_parent, to_child;

static void works_and_tells(void *arg)
{
	struct cow_storage *a = new_filled(5 * MIB, 0, 6), *b = lazy(a);
	struct cow_stats stats;

	(void)arg;
	mut(b)[0] = 1;
	stats = stats_now();
	gate_send(&to_parent, &stats, sizeof(stats));
	gate_wait(&to_child);
	cow_storage_unref(a);
	stats = stats_now();
	gate_send(&to_parent, &stats, sizeof(stats));
	gate_wait(&to_child);
	cow_storage_unref(b);
}

static void compare(pid_t pid)
{
	struct cow_stats told, seen;

	gate_receive(&to_parent, &told, sizeof(told));
	memset(&seen, 0, sizeof(seen));
	seen.size = sizeof(seen);
	ok(cow_stats_read(pid, &seen));
	ck_assert_uint_eq(seen.storages_live, told.storages_live);
	ck_assert_uint_eq(seen.bytes_live, told.bytes_live);
	ck_assert_uint_eq(seen.bytes_served, told.bytes_served);
	ck_assert_uint_eq(seen.clones_lazy, told.clones_lazy);
	ck_assert_uint_eq(seen.materialized_copy + seen.materialized_page,
	                  told.materialized_copy + told.materialized_page);
	ck_assert_uint_ne(seen.storages_live, stats_now().storages_live);
	gate_open(&to_child);
}

START_TEST(another_process)
{
	struct cow_storage *mine[5];
	struct cow_stats stats = { .size = sizeof(stats) };
	pid_t child;
	int i;

	gate_make(&to_parent);
	gate_make(&to_child);
	child = child_start(works_and_tells, NULL);
	for (i = 0; i < 5; i++)
		mine[i] = new_storage(MIB, 0);
	compare(child);
	compare(child);
	child_finish(child);
	fails(-ESRCH, cow_stats_read(child, &stats));
	ok(cow_stats_read(getpid(), &stats));
	ck_assert_uint_eq(stats.storages_live, stats_now().storages_live);
	for (i = 0; i < 5; i++)
		cow_storage_unref(mine[i]);
	gate_free(&to_parent);
	gate_free(&to_child);
}
END_TEST

static void may_not_look(void *arg)
{
	struct cow_stats stats = { .size = sizeof(stats), .bytes_live = 77 };
	int r;

	(void)arg;
	if (getuid() == 0)
		must(setgid(65534) == 0 && setuid(65534) == 0);
	r = cow_stats_read(getppid(), &stats);
	ck_assert_msg(r == -EACCES || r == -EPERM, "%d", r);
	ck_assert_str_ne(cow_last_error(), "");
	ck_assert_uint_eq(stats.bytes_live, 77);
}

/* Another user's; or, for one who can't become another, of a process that forbids looks. */
START_TEST(a_process_that_is_not_ours)
{
	struct cow_storage *s = new_storage(MIB, 0);

	if (getuid() != 0)
		must(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	in_child(may_not_look, NULL);
	cow_storage_unref(s);
	must(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
}
END_TEST

static void becomes_another_program(void *arg)
{
	(void)arg;
	dup2(to_child.fd[0], 0);
	/* The exec closes to_parent, and the parent sees it. */
	execl("/bin/cat", "cat", (char *)NULL);
	_exit(1);
}

START_TEST(a_process_without_us)
{
	struct cow_stats stats = { .size = sizeof(stats) };
	pid_t child;
	char byte;

	gate_make(&to_parent);
	gate_make(&to_child);
	child = child_start(becomes_another_program, NULL);
	close(to_parent.fd[1]);
	ck_assert_int_eq(read(to_parent.fd[0], &byte, 1), 0);
	fails(-ENOENT, cow_stats_read(child, &stats));
	kill(child, SIGKILL);
	child_status(child);
	close(to_parent.fd[0]);
	gate_free(&to_child);
}
END_TEST

START_TEST(features_are_probed)
{
	const char *name = NULL, *why = NULL;
	int i, there;

	for (i = 0; i <= COW_FEATURE_USERFAULTFD; i++) {
		name = why = NULL;
		there = cow_feature_probe((enum cow_feature)i, &name, &why);
		ck_assert_msg(there == 0 || there == 1, "%d: %d", i, there);
		ck_assert_ptr_nonnull(name);
		ck_assert_ptr_nonnull(why);
		ck_assert_str_ne(why, "");
		ck_assert_int_eq(cow_feature_probe((enum cow_feature)i, NULL,
		                                   NULL), there);
	}
	ck_assert_int_eq(cow_feature_probe(COW_FEATURE_MEMFD, NULL, NULL), 1);
	name = "kept";
	fails(-EINVAL, cow_feature_probe((enum cow_feature)1000, &name, NULL));
	ck_assert_str_eq(name, "kept");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stats");
	TCase *tcase = add_case(suite, "stats");

	tcase_add_test(tcase, live_bytes_and_storages);
	tcase_add_test(tcase, live_is_never_more_than_served);
	tcase_add_test(tcase, live_of_a_child_is_never_more_than_served);
	tcase_add_test(tcase, mappings_of_the_first_block);
	tcase_add_test(tcase, clones_and_materializations);
	tcase_add_test(tcase, bytes_not_copied);
	tcase_add_test(tcase, recycling);
	tcase_add_test(tcase, freezes_and_forks);
	tcase_add_test(tcase, forks_are_counted);
	tcase_add_test(tcase, fallbacks_have_names);
	tcase_add_test(tcase, shorter_structs);
	tcase_add_test(tcase, another_process);
	tcase_add_test(tcase, a_process_that_is_not_ours);
	tcase_add_test(tcase, a_process_without_us);
	tcase_add_test(tcase, features_are_probed);
	return run_suite(suite);
}
