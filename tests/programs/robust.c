/* SPDX-License-Identifier: MIT */
/*
 * Robust mutexes, and mutexes that inherit priorities, in a block that comes home
 *
 * The kernel writes such a mutex itself, when its owner ends or when it wakes a waiter. It finds
 * it by lists of addresses that no call names. A thread has one, waits in a call while the
 * block's pages are moved, and ends or unlocks at any moment. The next one must get the mutex,
 * and be told if the last owner has ended.
 */
#include "healing.h"
#include "later.h"

#define BYTES (4 * HUGE_PAGE)

enum { ROUNDS = 12, MUTEXES = 512 };

static int quiet[2];
static unsigned char *block;
static int locked, waits;
static uint64_t counted;

struct place {
	pthread_mutex_t mutex;
	uint64_t count; /* changed by its owners alone */
};

/* One in every fourth page. */
static struct place *place(size_t i)
{
	return (void *)(block + 4 * i * PAGE + 64);
}

static void make_all(int robust, int protocol)
{
	pthread_mutexattr_t how;

	check(pthread_mutexattr_init(&how) == 0);
	check(pthread_mutexattr_setrobust(&how, robust) == 0);
	check(pthread_mutexattr_setprotocol(&how, protocol) == 0);
	for (size_t i = 0; i < MUTEXES; i++) {
		check(pthread_mutex_init(&place(i)->mutex, &how) == 0);
		place(i)->count = 0;
	}
	counted = 0;
	pthread_mutexattr_destroy(&how);
}

static void lock_all(int owner_ended)
{
	int r;

	for (size_t i = 0; i < MUTEXES; i++) {
		r = pthread_mutex_lock(&place(i)->mutex);
		check(r == (owner_ended ? EOWNERDEAD : 0));
		if (owner_ended)
			check(pthread_mutex_consistent(&place(i)->mutex) == 0);
		place(i)->count++;
	}
}

static void unlock_all(void)
{
	for (size_t i = 0; i < MUTEXES; i++)
		check(pthread_mutex_unlock(&place(i)->mutex) == 0);
}

/* Waits with all of them, and unlocks them or ends (`arg`). */
static void *owns(void *arg)
{
	char bytes[5];

	lock_all(0);
	__atomic_store_n(&locked, 1, __ATOMIC_RELEASE);
	check(read(quiet[0], bytes, 5) == 5);
	if (!arg)
		unlock_all();
	return NULL;
}

/* Gets them next. */
static void *follows(void *arg)
{
	__atomic_store_n(&waits, 1, __ATOMIC_RELEASE);
	lock_all(arg != NULL);
	unlock_all();
	return NULL;
}

static void check_all(void)
{
	static unsigned char model[BYTES];

	fill(model, BYTES, 2);
	for (size_t i = 0; i < MUTEXES; i++) {
		check(place(i)->count == counted);
		memcpy(model + ((unsigned char *)place(i) - block), place(i),
		       sizeof(struct place));
	}
	check(memcmp(model, block, BYTES) == 0);
}

static void wait_for(const int *flag)
{
	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
		rest();
}

/* `ends`: the owner does not unlock. `early`: another thread waits for them all the time. */
static void one_owner(int ends, int protocol, int early, uint64_t *random)
{
	struct healing h = healing_begin(BYTES);
	void *how = ends ? &locked : NULL;
	pthread_t owner, next;

	block = h.block;
	make_all(ends ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED, protocol);
	locked = waits = 0;
	check(pthread_create(&owner, NULL, owns, how) == 0);
	wait_for(&locked);
	if (early) {
		check(pthread_create(&next, NULL, follows, how) == 0);
		wait_for(&waits);
	}
	later((struct deed){ .us = (unsigned)below(random, 6000), .times = 1,
	                     .fd = quiet[1] });
	healing_may_begin(&h);
	usleep((useconds_t)below(random, 1000));
	if (!early)
		check(pthread_create(&next, NULL, follows, how) == 0);
	check(pthread_join(owner, NULL) == 0);
	check(pthread_join(next, NULL) == 0);
	counted = 2;
	check_all();
	later_wait();
	wait_until_copied(block, BYTES, 0);
	check_all();
	lock_all(0);
	unlock_all();
	counted++;
	check_all();
	healing_end(&h);
}

/* ---- A thread whose number lies in the block ------------------------------------- */

static void *ends(void *arg)
{
	usleep((useconds_t)(uintptr_t)arg);
	return NULL;
}

/* libc keeps what it knows of a thread at the end of its stack: the kernel clears a word
 * there when the thread has ended, and wakes the one that joins it. */
static void stack_in_block(uint64_t *random)
{
	struct healing h = healing_begin(BYTES);
	pthread_attr_t how;
	pthread_t thread;

	block = h.block;
	check(pthread_attr_init(&how) == 0);
	check(pthread_attr_setstack(&how, block + HUGE_PAGE, HUGE_PAGE / 2) == 0);
	check(pthread_create(&thread, &how, ends,
	                     (void *)(uintptr_t)below(random, 300)) == 0);
	healing_may_begin(&h);
	check(pthread_join(thread, NULL) == 0);
	wait_until_copied(block, BYTES, 0);
	check(holds(block, HUGE_PAGE, 2));
	pthread_attr_destroy(&how);
	healing_end(&h);
}

int main(void)
{
	uint64_t random = 11;

	gate_make(quiet);
	alarm(100); /* a word that is lost may be waited for without end */
	later_begin();
	for (int i = 0; i < ROUNDS; i++) {
		one_owner(1, PTHREAD_PRIO_NONE, i % 2, &random);
		one_owner(1, PTHREAD_PRIO_INHERIT, i % 2, &random);
		one_owner(0, PTHREAD_PRIO_INHERIT, i % 2, &random);
		stack_in_block(&random);
	}
	later_end();
	puts("robust: done");
	return 0;
}
