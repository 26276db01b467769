/* SPDX-License-Identifier: MIT */
/*
 * Rewrites on other pages: the new bytes are computed from the old ones, and nobody copies
 */
#include "core/memory/state.h"
#include "core/memory/tile.h"
#include "tests/support/support.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t sizes[] = { 400 * KIB, MIB + 5, 2 * MIB, 5 * MIB + PAGE, 70 * MIB + 17 };

static int begin(void *p, size_t bytes, unsigned char **ret_at, struct cow_rewrite **ret)
{
	struct cow_range range = { p, bytes };
	void *at;
	int r;

	/* The helper may be making huge pages of the block. */
	for (int i = 0; (r = cow_rewrite_begin(&range, &at, ret)) == -EBUSY && i < 100; i++)
		usleep(10000);

	*ret_at = r == 0 ? at : NULL;
	return r;
}

/* The new bytes, from the old ones: one more each. */
static void compute(unsigned char *to, const unsigned char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (unsigned char)(from[i] + 1);
}

static bool is_one_more(const unsigned char *p, const unsigned char *old, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != (unsigned char)(old[i] + 1))
			return false;
	return true;
}

static uint64_t copied(void)
{
	struct cow_stats stats = { .size = sizeof(stats) };

	ok(cow_stats_get(&stats));
	return stats.bytes_copied;
}

/* Again and again beside a clone of each moment: nothing is copied, and the pages take no
 * more than two places. */
START_TEST(again_and_again)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 1), *b;
	unsigned char *p = expose(a), *at;
	struct cow_rewrite *w;
	uint64_t before;

	/* A helper that works on the block for long, on a busy machine, makes the end copy. */
	ok(cow_option_set("helper", "off"));
	for (int i = 0; i < 6; i++) {
		b = lazy(a);
		before = copied();
		ok(begin(p, bytes, &at, &w));
		must(at != p);
		compute(at, p, bytes);
		must(memcmp(p, data(b), bytes) == 0); /* nothing has changed yet */
		ok(cow_rewrite_end(w, true));
		must(is_one_more(p, data(b), bytes));
		ck_assert_uint_eq(copied(), before);
		ck_assert_uint_eq(info_of(a).frozen, 0); /* written in place from now on */
		p[bytes - 1]++;
		must(p[bytes - 1] == (unsigned char)(((unsigned char *)data(b))[bytes - 1] + 2));
		p[bytes - 1]--;
		cow_storage_unref(b);
	}
	ck_assert_uint_le(memfd_bytes(), 2 * bytes + 4 * MIB);
	cow_storage_unref(a);
}
END_TEST

/* Given up: as if nothing had been. */
START_TEST(given_up)
{
	struct cow_storage *a = new_filled(5 * MIB, COW_STORAGE_TRANSPARENT, 1), *b = lazy(a);
	unsigned char *p = expose(a), *at;
	struct cow_rewrite *w;

	for (int i = 0; i < 3; i++) {
		ok(begin(p, 5 * MIB, &at, &w));
		memset(at, 0, 5 * MIB);
		ok(cow_rewrite_end(w, false));
		ck_pattern(p, 5 * MIB, 1);
	}
	ck_pattern(data(b), 5 * MIB, 1);
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

START_TEST(bad_use)
{
	struct cow_storage *a = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 1), *b;
	struct cow_range range = { expose(a), 4 * MIB }, wraps = { range.start, SIZE_MAX };
	unsigned char *p = range.start, *at, local[64] = { 5 };
	struct cow_rewrite *w;
	void *place;

	fails(-EAGAIN, begin(p, 4 * MIB, &at, &w)); /* nothing is frozen */
	b = lazy(a);
	fails(-EINVAL, cow_rewrite_begin(NULL, &place, &w));
	fails(-EINVAL, cow_rewrite_begin(&range, NULL, &w));
	fails(-EINVAL, cow_rewrite_begin(&range, &place, NULL));
	fails(-EINVAL, cow_rewrite_begin(&wraps, &place, &w));
	fails(-EINVAL, cow_rewrite_end(NULL, true));
	fails(-ENOTSUP, begin(p, 4 * MIB - 1, &at, &w));
	fails(-ENOTSUP, begin(p, 4 * MIB + PAGE, &at, &w));
	fails(-ENOTSUP, begin(p + PAGE, 4 * MIB - PAGE, &at, &w));
	fails(-ENOTSUP, begin(local, sizeof(local), &at, &w));
	fails(-ENOTSUP, begin(NULL, 1, &at, &w));
	cow_storage_unref(b);
	refuses(begin(p, 4 * MIB, &at, &w));
	ck_pattern(p, 4 * MIB, 1);
	cow_storage_unref(a);
}
END_TEST

struct both {
	unsigned char *p;
	struct cow_rewrite *w;
	int end;
};

static void in_the_child(void *arg)
{
	struct both *both = arg;

	ck_pattern(both->p, 5 * MIB, 1);
	fails(-ESTALE, cow_rewrite_end(both->w, true));
	ck_pattern(both->p, 5 * MIB, 1);
	memset(both->p, 9, 5 * MIB);
}

/* What others do between the two calls: the result is the same. */
enum { FORK, LIVING_CHILD, CLONE, LAST_READER_GONE, PROTECT, TRIM, HELPER_WORKS, LONGER, RAW_CHILD, EVENTS };

/* As the helper does it while it makes huge pages. */
static void set_busy(void *p, bool busy)
{
	cow__engine_lock();
	cow__tile_find((uintptr_t)p)->work = busy ? COW__WORK_PAGES : COW__WORK_NONE;
	cow__engine_unlock();
}

static void raw_child(struct both *both)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	int status;

	if (pid == 0) /* it has none of the blocks */
		_exit(cow_rewrite_end(both->w, true) != -ESTALE);
	must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static struct cow_storage *next; /* lies behind `a` */

static void longer(struct cow_storage *a, struct cow_storage **b)
{
	struct cow_storage *both[2] = { a, next }, *clones[2];

	ok(cow_storages_lazy_clone(both, 2, NULL, clones));
	*b = clones[0];
	cow_storage_unref(clones[1]);
}

static void happens(int event, struct cow_storage *a, struct cow_storage **b, struct both *both,
                    pid_t *child)
{
	struct cow_storage *c;

	switch (event) {
	case FORK:
		in_child(in_the_child, both);
		break;
	case LIVING_CHILD:
		*child = child_start(in_the_child, both);
		break;
	case CLONE:
		c = lazy(a);
		ck_pattern(data(c), 5 * MIB, 1);
		cow_storage_unref(*b);
		*b = c;
		break;
	case LAST_READER_GONE:
		cow_storage_unref(*b);
		*b = NULL;
		ok(cow_storages_write_intent(&a, 1, COW_WRITE_AUTO, NULL));
		break;
	case PROTECT:
		must(mprotect(both->p, PAGE, PROT_READ) == 0);
		must(mprotect(both->p, PAGE, PROT_READ | PROT_WRITE) == 0);
		break;
	case LONGER: /* the gap behind it closes (core/cow/freeze.c) */
		cow_storage_unref(*b);
		ok(cow_storages_write_intent(&a, 1, COW_WRITE_AUTO, NULL));
		longer(a, b);
		break;
	case RAW_CHILD: /* the library hears nothing of this fork */
		raw_child(both);
		break;
	case HELPER_WORKS:
		set_busy(both->p, true);
		break;
	default:
		(void)cow_trim();
	}
}

START_TEST(what_happens_meanwhile)
{
	struct cow_storage *a = new_apart(5 * MIB), *b;
	struct both both = { .p = expose(a) };
	unsigned char *old = malloc(5 * MIB), *at;
	pid_t child = 0;

	fill(both.p, 5 * MIB, 1);
	b = lazy(a);
	next = new_apart(5 * MIB);
	fill(expose(next), 5 * MIB, 2);
	memcpy(old, both.p, 5 * MIB);
	ok(begin(both.p, 5 * MIB, &at, &both.w));
	compute(at, both.p, 5 * MIB / 2);
	happens(_i, a, &b, &both, &child);
	compute(at + 5 * MIB / 2, both.p + 5 * MIB / 2, 5 * MIB - 5 * MIB / 2);
	ok(cow_rewrite_end(both.w, true));
	must(is_one_more(both.p, old, 5 * MIB));
	if (_i == LONGER) /* copied: the new pages are too few for it */
		ck_assert_uint_eq(info_of(a).frozen, 1);
	if (_i == HELPER_WORKS)
		set_busy(both.p, false);
	if (b)
		ck_pattern(data(b), 5 * MIB, 1);
	if (_i == LIVING_CHILD)
		child_finish(child);
	must(is_one_more(both.p, old, 5 * MIB));
	free(old);
	ck_pattern(expose(next), 5 * MIB, 2);
	cow_storage_unref(next);
	cow_storage_unref(a);
	if (b)
		cow_storage_unref(b);
}
END_TEST

/* The program may use what lies behind its bytes. */
START_TEST(bytes_behind)
{
	struct cow_storage *of_block, *clone;
	struct cow_rewrite *w;
	unsigned char *p, *at, old[2 * PAGE];
	void *block;
	size_t n, rest;

	ok(cow_block_new(MIB + 5, 0, 0, &block));
	p = block;
	n = cow_block_bytes(block);
	rest = n - MIB - 5;
	must(rest && rest < sizeof(old));
	fill(p, n, 3);
	memcpy(old, p + MIB + 5, rest);
	ok(cow_storage_from_ptr(block, NULL, &of_block));
	clone = lazy(of_block);
	ok(begin(p, MIB + 5, &at, &w));
	memset(at, 8, MIB + 5);
	ok(cow_rewrite_end(w, true));
	ck_bytes(p, MIB + 5, 8);
	must(memcmp(p + MIB + 5, old, rest) == 0);
	ck_pattern(data(clone), MIB + 5, 3);
	cow_storage_unref(clone);
	cow_storage_unref(of_block);
	cow_block_free(block);
}
END_TEST

static void stays(void *arg)
{
	struct cow_storage *a = *(struct cow_storage **)arg;

	cow_storage_unref(a);
	(void)cow_trim();
	pause();
}

/* A child that was forked meanwhile keeps none of the new pages. */
START_TEST(a_child_keeps_nothing)
{
	struct cow_storage *a, *b;
	struct cow_stats stats = { .size = sizeof(stats) };
	unsigned char *p, *at;
	struct cow_rewrite *w;
	pid_t child;

	for (int again = 0; again < 2; again++) {
		a = new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 1);
		b = lazy(a);
		p = expose(a);
		for (int i = 0; i < again; i++) { /* then its own pages take their turn */
			ok(begin(p, 8 * MIB, &at, &w));
			compute(at, p, 8 * MIB);
			ok(cow_rewrite_end(w, true));
			cow_storage_unref(b);
			b = lazy(a);
		}
		ok(begin(p, 8 * MIB, &at, &w));
		cow_storage_unref(b);
		child = child_start(stays, &a);
		memset(at, 1, 8 * MIB);
		ok(cow_rewrite_end(w, true));
		cow_storage_unref(a);
		for (int i = 0; i < 500; i++) {
			(void)cow_trim();
			ok(cow_stats_get(&stats));
			if (!stats.bytes_limbo)
				break;
			usleep(10000);
		}
		ck_assert_uint_eq(stats.bytes_limbo, 0);
		kill(child, SIGKILL);
		must(waitpid(child, NULL, 0) == child);
		(void)cow_trim();
	}
}
END_TEST

static atomic_bool over;

static void *reads(void *arg)
{
	const volatile unsigned char *p = arg;

	/* Any number of turns may pass between two reads. A later read has at most the last
	 * byte of the turn before, and never an older one. */
	while (!over) {
		unsigned char first = p[0], last = p[8 * MIB - 1], again = p[0];

		if (last + 1 < first || again < first)
			return (void *)1;
		if (first == 0xff || last == 0xff)
			return (void *)1;
	}
	return NULL;
}

/* Another thread that reads sees old bytes or new ones, and never what is being computed. */
START_TEST(a_reader)
{
	struct cow_storage *a = new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 1), *b;
	unsigned char *p = expose(a), *at;
	struct cow_rewrite *w;
	pthread_t thread;
	void *wrong;

	memset(p, 0, 8 * MIB);
	must(pthread_create(&thread, NULL, reads, p) == 0);
	for (int i = 1; i < 100; i++) {
		b = lazy(a);
		ok(begin(p, 8 * MIB, &at, &w));
		memset(at, 0xff, 8 * MIB);
		memset(at, i, 8 * MIB);
		ok(cow_rewrite_end(w, true));
		cow_storage_unref(b);
	}
	over = true;
	must(pthread_join(thread, &wrong) == 0);
	must(!wrong);
	cow_storage_unref(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rewrite_elsewhere");
	TCase *tcase = add_case(suite, "rewrite_elsewhere");

	tcase_add_loop_test(tcase, again_and_again, 0, COUNT(sizes));
	tcase_add_test(tcase, given_up);
	tcase_add_test(tcase, bad_use);
	tcase_add_loop_test(tcase, what_happens_meanwhile, 0, EVENTS);
	tcase_add_test(tcase, bytes_behind);
	tcase_add_test(tcase, a_child_keeps_nothing);
	tcase_add_test(tcase, a_reader);
	return run_suite(suite);
}
