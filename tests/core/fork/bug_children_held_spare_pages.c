/* SPDX-License-Identifier: MIT */
/*
 * Children held spare pages, until they had started
 *
 * A state that is rewritten beside its readers has two places (core/memory/spare.h). A
 * child gave the spare one up in its fork handler. A parent that rewrote its state before
 * that found no spare pages and took new ones: a third place, and sometimes more.
 */
#include "core/storage/storage.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { BYTES = 2 * MIB + 5 * PAGE + 3, ROUNDS = 6, BLOCK = 8 * MIB };

static struct gate written;
static bool wait_first;

/* In the child, before the library's handler. */
static void start_late(void)
{
	if (wait_first)
		gate_wait(&written);
}

/* Constructors with a priority run before those without, and handlers in the order of
 * their registration. */
__attribute__((constructor(101))) static void register_first(void)
{
	pthread_atfork(NULL, NULL, start_late);
}

struct state {
	struct cow_storage *storage;
	uint64_t seed;
};

static void check(void *arg)
{
	const struct state *s = arg;

	ck_pattern(data(s->storage), BYTES, s->seed);
}

START_TEST(two_places_are_enough)
{
	struct state s = { .seed = 1 };
	uint64_t before = memfd_bytes();

	s.storage = new_filled(BYTES, COW_STORAGE_TRANSPARENT, s.seed);
	(void)expose(s.storage);
	gate_make(&written);
	for (int n = 0; n < ROUNDS; n++) {
		pid_t child;

		wait_first = true;
		child = child_start(check, &s);
		wait_first = false;
		ok(cow_storages_write_intent(&s.storage, 1, n % 2 ? COW_WRITE_ALL : COW_WRITE_AUTO,
		                             NULL));
		fill(expose(s.storage), BYTES, ++s.seed);
		gate_open(&written);
		child_finish(child);
		check(&s);
		/* And pages that say who holds what. */
		ck_assert_uint_le(memfd_bytes(), before + 2 * (BYTES + PAGE) + 16 * PAGE);
	}
	cow_storage_unref(s.storage);
	gate_free(&written);
}
END_TEST

static void start_and_wait(void *arg)
{
	gate_open(arg);
	gate_wait(&written);
}

/* Beside a descriptor for direct I/O a child gets a copy of a block, and none of the pages
 * that the block showed. If these are also spare, the child holds none of them. */
START_TEST(spare_pages_that_a_copied_block_showed)
{
	struct cow_storage *s = new_filled(BLOCK, COW_STORAGE_TRANSPARENT, 1);
	struct cow_storage *block = new_filled(BLOCK, 0, 9), *clone;
	size_t first, last;
	struct gate started;
	int direct;
	pid_t child;

	ok(cow_option_set("helper", "no"));
	ok(cow_option_set("decay", "0"));
	(void)expose(s);
	clone = lazy(s);
	ok(cow_storages_write_intent(&s, 1, COW_WRITE_AUTO, NULL));
	cow_storage_unref(clone);
	ck_assert_int_eq(cow__storage_copy_lazily(block, 0, s, 0, BLOCK / 2, &first, &last), 1);
	ok(cow_storages_write_intent(&s, 1, COW_WRITE_AUTO, NULL));
	direct = open("/proc/self/exe", O_RDONLY | O_DIRECT);
	if (direct < 0) { /* not on this file system */
		ck_assert_int_eq(errno, EINVAL);
		return;
	}
	gate_make(&written);
	gate_make(&started);
	child = child_start(start_and_wait, &started);
	gate_wait(&started);
	cow_storage_unref(block);
	cow_trim();
	ck_assert_uint_eq(stats_now().bytes_limbo, 0);
	gate_open(&written);
	child_finish(child);
	gate_free(&written);
	gate_free(&started);
	close(direct);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_children_held_spare_pages");
	TCase *tcase = add_case(suite, "bug_children_held_spare_pages");

	tcase_add_test(tcase, two_places_are_enough);
	tcase_add_test(tcase, spare_pages_that_a_copied_block_showed);
	return run_suite(suite);
}
