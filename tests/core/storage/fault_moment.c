/* SPDX-License-Identifier: MIT */
/*
 * Clones of one moment, with every kernel call failing in turn
 *
 * Another thread sleeps meanwhile, or there would be no child. The child's calls fail, too.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <pthread.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#define BYTES (2 * MIB + 9 * PAGE)

static pthread_t sleeper;
static pthread_mutex_t sleeps = PTHREAD_MUTEX_INITIALIZER;

static void *sleep_on(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&sleeps);
	pthread_mutex_unlock(&sleeps);
	return NULL;
}

static void wake(void)
{
	pthread_mutex_unlock(&sleeps);
	pthread_join(sleeper, NULL);
}

static void add(struct herd *herd, enum herd_kind kind)
{
	struct animal *a = &herd->animals[kind];

	sweep_add(herd, kind, new_storage(BYTES, COW_STORAGE_TRANSPARENT), NULL, BYTES);
	a->exposed = expose(a->storage);
}

static void fresh(struct herd *herd)
{
	pthread_mutex_lock(&sleeps);
	ck_assert_int_eq(pthread_create(&sleeper, NULL, sleep_on, NULL), 0);
	sweep_finish(wake);
	add(herd, HERD_CLONED);
	add(herd, HERD_TRANSPARENT);
}

/* Written since the first clone: every `step`-th page. */
static void written(struct herd *herd, size_t step)
{
	struct animal *a = &herd->animals[HERD_CLONED];

	fresh(herd);
	sweep_add_clone(herd, HERD_CLONED, HERD_CLONE, lazy(a->storage));
	for (size_t at = 0; at < BYTES; at += step * PAGE)
		a->exposed[at] = *(volatile unsigned char *)(a->exposed + at);
	memmove(a->exposed + MIB, a->exposed + MIB, 100 * KIB);
}

static void some_written(struct herd *herd)
{
	written(herd, 64);
}

static void all_written(struct herd *herd)
{
	written(herd, 1);
}

static int clone_both(struct herd *herd)
{
	struct cow_storage *from[2] = {
		herd->animals[HERD_CLONED].storage,
		herd->animals[HERD_TRANSPARENT].storage,
	};
	struct cow_storage *to[2] = { SWEEP_UNTOUCHED, SWEEP_UNTOUCHED };
	uint64_t copied = 77;
	int r = cow_storages_clone_at_once(from, 2, &copied, to);

	if (r < 0) {
		ck_assert_uint_eq(copied, 77);
		ck_assert(!to[0] && !to[1]);
		return r;
	}
	sweep_add_clone(herd, HERD_CLONED, HERD_LAZY_B, to[0]);
	sweep_add_clone(herd, HERD_TRANSPARENT, HERD_COPY, to[1]);
	return 0;
}

static const struct operation operations[] = {
	{ "moment of fresh storages", fresh, clone_both },
	{ "moment of written ones", some_written, clone_both },
	{ "moment of rewritten ones", all_written, clone_both },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
}
END_TEST

/* The kernel may forbid to read a child's memory. Then the child copies it. */
START_TEST(child_answers)
{
	struct cow_storage *s = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 1), *first, *c;
	unsigned char *p = expose(s);

	first = lazy(s);
	for (size_t i = 0; i < BYTES / PAGE; i += _i ? 1 : 40) /* all of it, or some */
		p[i * PAGE + i % PAGE]++;
	pthread_mutex_lock(&sleeps);
	ck_assert_int_eq(pthread_create(&sleeper, NULL, sleep_on, NULL), 0);
	fault_deny(SYS_process_vm_readv, FAULT_ANY, 0, EPERM);
	ok(cow_storages_clone_at_once(&s, 1, NULL, &c));
	ck_assert_uint_eq(fault_denials(), 1); /* it is asked once */
	ck_assert(memcmp(data(c), p, BYTES) == 0);
	wake();
	cow_storage_unref(c);
	cow_storage_unref(first);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_moment");
	TCase *tcase = add_case(suite, "moment");

	tcase_add_loop_test(tcase, every_call_fails, 0, sweep_rounds(COUNT(operations)));
	tcase_add_loop_test(tcase, child_answers, 0, 2);
	return run_suite(suite);
}
