/* SPDX-License-Identifier: MIT */
/*
 * A thread waits in a call that writes into a block, and the block comes home meanwhile
 *
 * For each call of a table: a thread makes it, with what it writes in the middle of a block
 * that was rewritten after a fork. Then the child of that fork ends, and the rest of the block
 * may be moved. The pages that the call may write must stay where they are until it has ended.
 */
#ifndef COWSHED_TESTS_PARKED_H
#define COWSHED_TESTS_PARKED_H

#include "healing.h"

#define BYTES (4 * HUGE_PAGE)
#define IN_THE_MIDDLE (HUGE_PAGE + 3 * PAGE + 64)

/* Most rows of a table leave the last members out. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct call {
	const char *name;
	size_t (*wait)(unsigned char *at); /* how many bytes from `at` on it may have changed */
	void (*wake)(void);
	void (*make)(void);                /* what lies in the block (`shared`), or NULL */
	size_t bytes;                      /* that may be written; 0: a page at most */
	enum { OTHERS_COME, NONE_COMES, ALL_COME } home; /* which pages may, meanwhile */
};

static int quiet[2]; /* a pipe that stays empty until the wait is to end */
static pthread_t waiter;
static unsigned char *shared;
static const struct call *current;
static size_t changed;
static int ended; /* the wait */
static pid_t caller;

static inline void wake_by_pipe(void)
{
	check(write(quiet[1], "hello", 5) == 5);
}

static void *make_call(void *arg)
{
	__atomic_store_n(&caller, gettid(), __ATOMIC_RELEASE);
	changed = current->wait(shared);
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	return arg;
}

/* Until the thread sleeps: before that it may wait for something else, and all pages may
 * come home. */
static inline void wait_until_it_sleeps(void)
{
	char path[48], line[256];
	int sleeps = 0, fd;
	ssize_t n;
	pid_t tid;

	while (!(tid = __atomic_load_n(&caller, __ATOMIC_ACQUIRE)))
		rest();
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	while (sleeps < 3) {
		rest();
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return; /* no /proc */
		n = read(fd, line, sizeof(line) - 1);
		close(fd);
		check(n > 0);
		line[n] = '\0';
		sleeps = strstr(line, ") S ") ? sleeps + 1 : 0;
	}
}

/* The pages of the call are copied ones, and no others. */
static inline void others_come_home(const struct healing *h)
{
	size_t at = (size_t)(shared - h->block), first = at / HUGE_PAGE;
	size_t last = (at + (current->bytes ? current->bytes : 1) - 1) / HUGE_PAGE;

	for (size_t i = 0; i < h->bytes / HUGE_PAGE; i++)
		if (i < first || i > last)
			wait_until_copied(h->block + i * HUGE_PAGE, HUGE_PAGE, 0);
	for (int looks = 0; library() && looks < 4; looks++) {
		for (size_t i = first; i <= last; i++)
			check(copied(h->block + i * HUGE_PAGE, HUGE_PAGE) ==
			      HUGE_PAGE / PAGE);
		if (looks < 3)
			wait_for_slices(1);
	}
}

static inline void nothing_comes_home(const struct healing *h)
{
	wait_for_refusals(COW_FALLBACK_BLOCKED, 3);
	check(!library() || copied(h->block, h->bytes) == h->bytes / PAGE);
}

static inline void run_call(const struct call *c)
{
	static unsigned char model[BYTES];
	struct healing h = healing_begin(BYTES);
	size_t at = c->bytes > PAGE ? HUGE_PAGE + 100 * PAGE : IN_THE_MIDDLE;

	current = c;
	shared = h.block + at;
	ended = 0;
	caller = 0;
	if (c->make)
		c->make();
	check(pthread_create(&waiter, NULL, make_call, NULL) == 0);
	wait_until_it_sleeps();
	healing_may_begin(&h);
	if (c->home == NONE_COMES)
		nothing_comes_home(&h);
	else if (c->home == ALL_COME)
		wait_until_copied(h.block, h.bytes, 0);
	else
		others_come_home(&h);
	c->wake();
	check(pthread_join(waiter, NULL) == 0);
	fill(model, BYTES, 2);
	check(changed <= (c->bytes ? c->bytes : PAGE));
	memcpy(model + at, shared, changed);
	check(memcmp(model, h.block, BYTES) == 0);
	wait_until_copied(h.block, BYTES, 0);
	check(memcmp(model, h.block, BYTES) == 0);
	healing_end(&h);
	printf("%s\n", c->name);
}

/* The argument is the name of a call; without one it is all of them. */
static inline void run_calls(const struct call *calls, size_t n, const char *only)
{
	for (size_t i = 0; i < n; i++)
		if (!only || strcmp(only, calls[i].name) == 0)
			run_call(&calls[i]);
}

#endif
