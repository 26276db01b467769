/* SPDX-License-Identifier: MIT */
/*
 * fork: each side sees the bytes of that moment, and its own writes after it
 *
 * Whatever either side then does, the other notices nothing: rewriting,
 * cloning, freeing, allocating, exiting, being killed. Each test takes a herd
 * (a storage or block in every state) through one such story; herd_check()
 * looks at every byte.
 */
#include "tests/support/herd.h"
#include "tests/support/support.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct family {
	struct herd herd;
	struct gate to_child, to_parent;
	int depth;
};

static struct family family;

static void make_family(void)
{
	gate_make(&family.to_child);
	gate_make(&family.to_parent);
	herd_make(&family.herd, 1000);
}

static void free_family(void)
{
	herd_check(&family.herd);
	herd_free(&family.herd);
	gate_free(&family.to_child);
	gate_free(&family.to_parent);
}

/* ---- Two processes ------------------------------------------------------- */

static void only_checks(void *arg)
{
	(void)arg;
	herd_check(&family.herd);
}

/* Small gaps of free memory lie between blocks whose old page tables move together. */
struct row {
	unsigned char *block[6];
	size_t bytes[6];
};

static void row_check(void *arg)
{
	struct row *r = arg;

	for (unsigned i = 0; i < 6; i++)
		if (r->block[i])
			must(first_wrong(r->block[i], r->bytes[i], i + 1) ==
			     r->bytes[i]);
}

START_TEST(across_gaps)
{
	struct row r = { .bytes = { 5 * MIB, MIB, 9 * MIB, 3 * MIB / 2, 40 * MIB, MIB } };

	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 6; i++) {
			r.block[i] = new_block(r.bytes[i], 0);
			fill(r.block[i], r.bytes[i], i + 1);
		}
		for (unsigned i = 1; i < 6; i += 2) {
			cow_block_free(r.block[i]);
			r.block[i] = NULL;
		}
		in_child(row_check, &r);
		row_check(&r);
		r.block[1] = new_block(r.bytes[1], COW_BLOCK_ZERO);
		ck_bytes(r.block[1], r.bytes[1], 0);
		fill(r.block[1], r.bytes[1], 2);
		in_child(row_check, &r);
		row_check(&r);
		for (unsigned i = 0; i < 6; i++)
			if (r.block[i])
				cow_block_free(r.block[i]);
	}
}
END_TEST

struct state {
	struct cow_storage *storage[8];
	unsigned seed;
};

enum { STATE_BYTES = 2 * MIB + 5 * PAGE + 3 };

static void state_check(void *arg)
{
	const struct state *s = arg;

	for (unsigned i = 0; i < COUNT(s->storage); i++)
		ck_pattern(data(s->storage[i]), STATE_BYTES, s->seed + i);
}

static bool holds_at_most(void *arg)
{
	return memfd_bytes() <= *(uint64_t *)arg;
}

/* Each place of the state is rewritten into another one while a child reads it, again and
 * again. No page is in a gap. */
START_TEST(rewritten_between_forks)
{
	uint64_t most = memfd_bytes() + 2 * COUNT(((struct state *)0)->storage) *
	                                        (STATE_BYTES + PAGE) + 6 * MIB;
	struct state s = { .seed = 1 };
	pid_t child;

	for (unsigned i = 0; i < COUNT(s.storage); i++)
		s.storage[i] = new_filled(STATE_BYTES, COW_STORAGE_TRANSPARENT, s.seed + i);
	for (unsigned n = 0; n < 5; n++) {
		child = child_start(state_check, &s);
		ok(cow_storages_write_intent(s.storage, COUNT(s.storage),
		                             n % 2 ? COW_WRITE_ALL : COW_WRITE_AUTO, NULL));
		s.seed += COUNT(s.storage);
		for (unsigned i = 0; i < COUNT(s.storage); i++)
			fill(expose(s.storage[i]), STATE_BYTES, s.seed + i);
		child_finish(child);
		state_check(&s);
		/* The helper gives old places back, when it has the processor. */
		ck_assert(wait_until(holds_at_most, &most, 30));
	}
	for (unsigned i = 0; i < COUNT(s.storage); i++)
		cow_storage_unref(s.storage[i]);
}
END_TEST

START_TEST(child_sees_the_moment)
{
	make_family();
	in_child(only_checks, NULL);
	free_family();
}
END_TEST

static void rewrites_then_checks(void *arg)
{
	(void)arg;
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 2000, 1);
	gate_open(&family.to_parent);
	gate_wait(&family.to_child);
	herd_check(&family.herd);
}

/* The child writes first, then the parent, then both look. */
START_TEST(child_writes_first)
{
	pid_t child;

	make_family();
	child = child_start(rewrites_then_checks, NULL);
	gate_wait(&family.to_parent);
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 3000, 1);
	gate_open(&family.to_child);
	child_finish(child);
	free_family();
}
END_TEST

static void waits_then_rewrites(void *arg)
{
	(void)arg;
	gate_wait(&family.to_child);
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 2000, 1);
	herd_check(&family.herd);
	gate_open(&family.to_parent);
	gate_wait(&family.to_child);
	herd_check(&family.herd);
}

/* The other way round, and half of it again afterwards. */
START_TEST(parent_writes_first)
{
	pid_t child;

	make_family();
	child = child_start(waits_then_rewrites, NULL);
	herd_rewrite(&family.herd, 3000, 1);
	gate_open(&family.to_child);
	gate_wait(&family.to_parent);
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 4000, 2);
	gate_open(&family.to_child);
	child_finish(child);
	free_family();
}
END_TEST

static void waits_and_checks(void *arg)
{
	(void)arg;
	gate_wait(&family.to_child);
	herd_check(&family.herd);
}

START_TEST(parent_frees_while_child_reads)
{
	struct herd other;
	pid_t child;

	make_family();
	child = child_start(waits_and_checks, NULL);
	herd_free(&family.herd);
	/* Whoever gets that memory now must not be seen by the child. */
	herd_make(&other, 5000);
	cow_trim();
	herd_rewrite(&other, 6000, 1);
	gate_open(&family.to_child);
	child_finish(child);
	herd_check(&other);
	herd_free(&other);
	free_family();
}
END_TEST

START_TEST(parent_frees_half_of_it)
{
	pid_t child;

	make_family();
	child = child_start(waits_and_checks, NULL);
	herd_free_half(&family.herd, _i);
	cow_trim();
	herd_rewrite(&family.herd, 6000, 1);
	gate_open(&family.to_child);
	child_finish(child);
	free_family();
}
END_TEST

static void frees_and_makes(void *arg)
{
	struct herd other;

	(void)arg;
	herd_free(&family.herd);
	cow_trim();
	ck_assert_uint_eq(stats_now().storages_live, 0);
	ck_assert_uint_eq(stats_now().blocks_live, 0);
	herd_make(&other, 7000);
	gate_open(&family.to_parent);
	gate_wait(&family.to_child);
	herd_check(&other);
	herd_free(&other);
}

START_TEST(child_frees_while_parent_reads)
{
	pid_t child;

	make_family();
	child = child_start(frees_and_makes, NULL);
	gate_wait(&family.to_parent);
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 8000, 2);
	gate_open(&family.to_child);
	herd_check(&family.herd);
	child_finish(child);
	free_family();
}
END_TEST

/* Clones of what was inherited, by both, of the same storages. */
static void clones_and_writes(void *arg)
{
	struct cow_storage *clone[HERD_KINDS] = { 0 };
	struct herd *herd = arg;
	int i;

	for (i = 0; i < HERD_KINDS; i++) {
		struct animal *a = &herd->animals[i];

		if (a->storage == NULL)
			continue;
		clone[i] = lazy(a->storage);
		if (i % 2)
			memset(mut(clone[i]), 0x31, a->bytes);
	}
	herd_check(herd);
	herd_rewrite(herd, 9000 + (uint64_t)getpid() % 1000, 3);
	for (i = 0; i < HERD_KINDS; i++) {
		if (clone[i] == NULL)
			continue;
		if (i % 2)
			ck_bytes(data(clone[i]), herd->animals[i].bytes, 0x31);
		cow_storage_unref(clone[i]);
	}
	herd_check(herd);
}

START_TEST(both_clone_what_they_share)
{
	pid_t child;

	make_family();
	child = child_start(clones_and_writes, &family.herd);
	clones_and_writes(&family.herd);
	child_finish(child);
	clones_and_writes(&family.herd);
	free_family();
}
END_TEST

/* ---- More than two ------------------------------------------------------- */

/* Each generation rewrites, has a child, rewrites again, and checks. */
static void begets(void *arg)
{
	int depth = *(int *)arg, next = depth + 1;
	pid_t child;

	herd_check(&family.herd);
	herd_rewrite(&family.herd, (uint64_t)(10000 * depth), depth % 3 + 1);
	if (depth == 6)
		return;
	child = child_start(begets, &next);
	herd_check(&family.herd);
	herd_rewrite(&family.herd, (uint64_t)(10000 * depth + 5000), 2);
	herd_check(&family.herd);
	child_finish(child);
	herd_check(&family.herd);
}

START_TEST(generations)
{
	int depth = 1;

	make_family();
	begets(&depth);
	free_family();
}
END_TEST

START_TEST(one_after_the_other)
{
	int i;

	make_family();
	for (i = 0; i < ROUNDS(40); i++) {
		in_child(i % 3 ? only_checks : clones_and_writes,
		         &family.herd);
		if (i % 4)
			herd_rewrite(&family.herd, (uint64_t)(i + 1) * 100,
			             i % 4);
		herd_check(&family.herd);
	}
	free_family();
}
END_TEST

/* Each child lives from another moment on, and they all look at the end. More
 * than 63 of them, too, which the engine can't all tell apart. */
START_TEST(many_at_once)
{
	enum { MANY = 90 };
	pid_t child[MANY];
	int i, many = _i ? MANY : 12;

	if (UNDER_TSAN)
		many = 12;
	make_family();
	herd_free_half(&family.herd, 0);
	for (i = 0; i < many; i++) {
		child[i] = child_start(waits_and_checks, NULL);
		herd_rewrite(&family.herd, (uint64_t)(i + 1) * 100, 5);
	}
	herd_check(&family.herd);
	for (i = 0; i < many; i++)
		gate_open(&family.to_child);
	for (i = 0; i < many; i++)
		child_finish(child[i]);
	free_family();
}
END_TEST

/* ---- Ends ---------------------------------------------------------------- */

static void orphan(void *arg)
{
	(void)arg;
	gate_wait(&family.to_child);
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 42000, 1);
	herd_check(&family.herd);
	gate_open(&family.to_parent);
}

static void leaves_an_orphan(void *arg)
{
	herd_rewrite(&family.herd, 41000, 2);
	child_start(orphan, arg);
	herd_rewrite(&family.herd, 43000, 1);
}

/* The parent of a child is gone before the child looks. It reports by the
 * gate: if an assertion of its fails, nobody opens it. */
START_TEST(child_outlives_its_parent)
{
	make_family();
	in_child(leaves_an_orphan, NULL);
	herd_rewrite(&family.herd, 44000, 1);
	cow_trim();
	gate_open(&family.to_child);
	gate_wait(&family.to_parent);
	free_family();
}
END_TEST

static void works_until_killed(void *arg)
{
	struct prng prng = prng_make((uint64_t)getpid());
	struct cow_storage *clone;
	struct animal *a;

	gate_open(arg);
	for (;;) {
		a = &family.herd.animals[prng_below(&prng, HERD_KINDS)];
		if (a->storage != NULL) {
			clone = lazy(a->storage);
			mut(clone)[prng_below(&prng, a->bytes)] ^= 1;
			cow_storage_unref(clone);
		}
		herd_rewrite(&family.herd, prng_next(&prng), 4);
		if (prng_below(&prng, 20) == 0)
			in_child(only_checks, NULL);
	}
}

static bool nothing_in_limbo(void *arg)
{
	(void)arg;
	cow_trim();
	return stats_now().bytes_limbo == 0;
}

/* Killed in the middle of anything: the parent's bytes are as they were, and
 * what the dead held comes back. */
START_TEST(killed_children)
{
	enum { MANY = 4 };
	pid_t child[MANY];
	int round, i;

	make_family();
	for (round = 0; round < ROUNDS(12); round++) {
		for (i = 0; i < MANY; i++)
			child[i] = child_start(works_until_killed,
			                       &family.to_parent);
		for (i = 0; i < MANY; i++)
			gate_wait(&family.to_parent);
		herd_rewrite(&family.herd, (uint64_t)(round + 1) * 100, 2);
		for (i = 0; i < MANY; i++) {
			kill(child[i], SIGKILL);
			must(WIFSIGNALED(child_status(child[i])));
		}
		herd_check(&family.herd);
	}
	free_family();
	must(wait_until(nothing_in_limbo, NULL, 30));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	TCase *tcase = add_case(suite, "fork");

	tcase_add_test(tcase, across_gaps);
	tcase_add_test(tcase, rewritten_between_forks);
	tcase_add_test(tcase, child_sees_the_moment);
	tcase_add_test(tcase, child_writes_first);
	tcase_add_test(tcase, parent_writes_first);
	tcase_add_test(tcase, parent_frees_while_child_reads);
	tcase_add_loop_test(tcase, parent_frees_half_of_it, 0, 2);
	tcase_add_test(tcase, child_frees_while_parent_reads);
	tcase_add_test(tcase, both_clone_what_they_share);
	tcase_add_test(tcase, generations);
	tcase_add_test(tcase, one_after_the_other);
	tcase_add_loop_test(tcase, many_at_once, 0, 2);
	tcase_add_test(tcase, child_outlives_its_parent);
	tcase_add_test(tcase, killed_children);
	return run_suite(suite);
}
