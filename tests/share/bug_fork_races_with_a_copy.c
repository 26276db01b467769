/* SPDX-License-Identifier: MIT */
/*
 * A thread forked while another thread copied a storage of a group
 *
 * The first fork makes a pack private, and notes that of the pack and of each storage in it. A copy
 * from the pack and a view of it ask about that without the lock, and read the notes without atomics:
 * a data race, in C. ThreadSanitizer reports it here.
 */
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <pthread.h>
#include <unistd.h>

enum { TIMES = 10 };
#define BYTES (4 * MIB)

struct both {
	struct cow_storage *storage;
	pthread_barrier_t start;
	int forked;
};

/* The sealed storage is a copy: what lies in a pack can't be sealed. */
static void *copies(void *arg)
{
	struct both *b = arg;
	uint64_t offset;
	int fd;

	pthread_barrier_wait(&b->start);
	ok(cow_storage_export(b->storage, COW_SHARE_SEALED, &fd, &offset));
	close(fd);
	return NULL;
}

static void ends(void *arg)
{
	(void)arg;
}

START_TEST(forks_beside_copies)
{
	struct cow_group *group;
	pthread_t thread;
	struct both b;

	ok(cow_group_new(&group));
	ok(cow_group_storage_new(group, BYTES, COW_SHARE_CLONE, &b.storage));
	fill(mut(b.storage), BYTES, 1);
	must(pthread_barrier_init(&b.start, NULL, 2) == 0);
	must(pthread_create(&thread, NULL, copies, &b) == 0);
	pthread_barrier_wait(&b.start);
	/* Ever later, so that now and then the other thread is copying. */
	for (volatile int later = 0; later < _i * 200000; later++)
		;
	in_child(ends, NULL);
	must(pthread_join(thread, NULL) == 0);
	pthread_barrier_destroy(&b.start);
	cow_storage_unref(b.storage);
	cow_group_unref(group);
}
END_TEST

/* Nothing but the note orders this thread and the fork, so ThreadSanitizer sees the race each time. */
static void *views(void *arg)
{
	struct both *b = arg;

	while (!__atomic_load_n(&b->forked, __ATOMIC_RELAXED))
		;
	mut_range(b->storage, 0, 1, COW_WRITE_BY_PAGE)[0] = 1;
	return NULL;
}

START_TEST(fork_before_a_view)
{
	struct both b = { .forked = 0 };
	struct cow_storage *s;
	struct cow_group *group;
	pthread_t thread;

	ok(cow_group_new(&group));
	ok(cow_group_storage_new(group, BYTES, COW_SHARE_CLONE, &s));
	fill(mut(s), BYTES, 1);
	b.storage = lazy(s);
	must(pthread_create(&thread, NULL, views, &b) == 0);
	in_child(ends, NULL);
	__atomic_store_n(&b.forked, 1, __ATOMIC_RELAXED);
	must(pthread_join(thread, NULL) == 0);
	cow_storage_unref(b.storage);
	cow_storage_unref(s);
	cow_group_unref(group);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork_races_with_a_copy");

	tcase_add_loop_test(add_case(suite, "bug"), forks_beside_copies, 0, TIMES);
	tcase_add_test(add_case(suite, "view"), fork_before_a_view);
	return run_suite(suite);
}
