/* SPDX-License-Identifier: MIT */
/*
 * mprotect on malloc's pages: guard pages and read-only pages keep their protection,
 * over forks and over the allocator's own remapping
 */
#include "pages.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>

enum { PAGES = 1024, GUARD = 100, READ_ONLY = 200, RUN = 64 };

static const size_t bytes = PAGES * PAGE;
static unsigned char *p;
static _Thread_local sigjmp_buf escape;
static int to_child[2];

static unsigned char *page(int number)
{
	return p + (size_t)number * PAGE;
}

static void write_around(uint64_t seed)
{
	fill(p, GUARD * PAGE, seed);
	fill(page(GUARD + 1), (READ_ONLY - GUARD - 1) * PAGE, seed + 1);
	fill(page(READ_ONLY + RUN), (PAGES - READ_ONLY - RUN) * PAGE, seed + 2);
}

static void check_around(uint64_t seed)
{
	check(holds(p, GUARD * PAGE, seed));
	check(holds(page(GUARD + 1), (READ_ONLY - GUARD - 1) * PAGE, seed + 1));
	check(holds(page(READ_ONLY + RUN), (PAGES - READ_ONLY - RUN) * PAGE,
	            seed + 2));
}

static void check_protections(void)
{
	int i;

	check(writable(page(GUARD - 1)) && writable(page(GUARD + 1)));
	check(!readable(page(GUARD)) && !writable(page(GUARD)));
	check(!readable(page(GUARD) + PAGE - 1));
	check(writable(page(READ_ONLY - 1)));
	for (i = 0; i < RUN; i++)
		check(readable(page(READ_ONLY + i)) &&
		      !writable(page(READ_ONLY + i)));
	check(writable(page(READ_ONLY + RUN)));
	check(holds(page(READ_ONLY), RUN * PAGE, 50));
}

static void in_the_child(void *arg)
{
	uint64_t seed = *(uint64_t *)arg;

	check_protections();
	check_around(seed);
	write_around(seed + 100);
	gate_wait(to_child);
	check_around(seed + 100);
	check_protections();
	/* Its own from now on. */
	check(mprotect(page(READ_ONLY), RUN * PAGE, PROT_READ | PROT_WRITE) ==
	      0);
	fill(page(READ_ONLY), RUN * PAGE, 60);
	check(mprotect(page(GUARD), PAGE, PROT_READ | PROT_WRITE) == 0);
	check(holds(page(GUARD), PAGE, 51));
	free(p);
}

static void over_forks(void)
{
	uint64_t seed;
	pid_t child;

	for (seed = 1; seed < 7; seed++) {
		child = start(in_the_child, &seed);
		if (seed % 2)
			write_around(seed + 1);
		check_protections();
		/* Something for the allocator to do. */
		free(get_filled(3 * MIB, 9));
		malloc_trim(0);
		gate_open(to_child);
		finish(child);
		check_protections();
		write_around(seed + 1);
		check_around(seed + 1);
	}
}

static void caught(int signal)
{
	(void)signal;
	siglongjmp(escape, 1);
}

/* A write to the guard is a SIGSEGV, as a program with a handler expects. */
static void guards_raise_signals(void)
{
	struct sigaction action = { .sa_handler = caught };
	volatile int caughts = 0;

	sigemptyset(&action.sa_mask);
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	if (sigsetjmp(escape, 1) == 0)
		*(volatile unsigned char *)page(GUARD) = 1;
	else
		caughts++;
	if (sigsetjmp(escape, 1) == 0)
		*(volatile unsigned char *)page(READ_ONLY) = 1;
	else
		caughts++;
	check(caughts == 2);
	signal(SIGSEGV, SIG_DFL);
	check_protections();
}

static _Atomic(volatile unsigned char *) closed, opened;
static atomic_int turns, written, refused;
static atomic_bool stop;

static int write_to(volatile unsigned char *at)
{
	if (sigsetjmp(escape, 1) != 0)
		return 0;
	*at = *at;
	return 1;
}

/* Writes to pages that are closed and to others, until it is told to stop. */
static void *write_on(void *arg)
{
	while (!atomic_load(&stop)) {
		volatile unsigned char *at = atomic_load(&closed), *to = atomic_load(&opened);

		if (at != NULL)
			atomic_fetch_add(&written, write_to(at));
		if (to != NULL)
			atomic_fetch_add(&refused, !write_to(to));
		atomic_fetch_add(&turns, 1);
	}
	return arg;
}

/* Waits until it has seen its new task, and finished the one before. */
static void wait_two_turns(void)
{
	int before = atomic_load(&turns);

	while (atomic_load(&turns) - before < 2)
		sched_yield();
}

static void nothing(void *arg)
{
	(void)arg;
}

/* One page of its own, or what a program did to all of it and then took back in part. */
static void protect_in_part(unsigned char *q, int way)
{
	const int all_of_it[] = { PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE };

	check(mprotect(q, bytes, all_of_it[way]) == 0);
	check(mprotect(q + bytes / 2, bytes / 4, PROT_READ | PROT_WRITE) == 0);
	check(mprotect(q + bytes / 2 + READ_ONLY * PAGE, PAGE, PROT_READ) == 0);
	atomic_store(&opened, q + bytes / 2 + 5 * PAGE);
	atomic_store(&closed, q + bytes / 2 + READ_ONLY * PAGE);
}

/* After a fork the mapping is another one. It is protected as before, from the start. */
static void protected_all_the_time(void)
{
	struct sigaction action = { .sa_handler = caught };
	pthread_t thread;

	sigemptyset(&action.sa_mask);
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	check(pthread_create(&thread, NULL, write_on, NULL) == 0);
	for (int i = 0; i < 90; i++) {
		unsigned char *q = get_pages(bytes);

		fill(q, bytes, 52);
		protect_in_part(q, i % 3);
		wait_two_turns();
		in_child(nothing, NULL);
		wait_two_turns();
		atomic_store(&closed, NULL);
		atomic_store(&opened, NULL);
		wait_two_turns();
		check(mprotect(q, bytes, PROT_READ | PROT_WRITE) == 0);
		check(holds(q, bytes, 52));
		free(q);
	}
	atomic_store(&stop, 1);
	check(pthread_join(thread, NULL) == 0);
	signal(SIGSEGV, SIG_DFL);
	if (written != 0 || refused != 0)
		dprintf(2, "protect: %d writes to what is closed, %d faults of what is open\n",
		        atomic_load(&written), atomic_load(&refused));
	check(written == 0 && refused == 0);
}

/* A protected block may be freed, and the next block there is not protected. */
static void freed_protected(void)
{
	unsigned char *q[6];
	int i;

	for (i = 0; i < 6; i++) {
		q[i] = get_pages(bytes);
		fill(q[i], bytes, 3);
		check(mprotect(q[i], bytes, PROT_READ) == 0);
		check(mprotect(q[i], bytes, PROT_READ | PROT_WRITE) == 0);
		check(holds(q[i], bytes, 3));
		check(mprotect(q[i] + MIB, MIB, PROT_NONE) == 0);
	}
	for (i = 0; i < 6; i++)
		free(q[i]);
	for (i = 0; i < 6; i++) {
		q[i] = get_pages(bytes);
		fill(q[i], bytes, 4);
		check(holds(q[i], bytes, 4));
	}
	for (i = 0; i < 6; i++)
		free(q[i]);
}

static void in_another_child(void *arg)
{
	(void)arg;
	check(holds(p, bytes, 70));
	check(!writable(p) && !writable(p + bytes - 1));
	check(mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0);
	fill(p, bytes, 71);
}

/* A snapshot that a program takes by itself: all read-only, then fork. */
static void all_read_only(void)
{
	fill(p, bytes, 70);
	check(mprotect(p, bytes, PROT_READ) == 0);
	in_child(in_another_child, NULL);
	check(holds(p, bytes, 70));
	check(!writable(p) && !writable(p + bytes - 1));
	in_child(in_another_child, NULL);
	check(mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0);
	check(holds(p, bytes, 70));
	fill(p, bytes, 72);
	check(holds(p, bytes, 72));
}

static int key;

static void check_locked_by_key(void)
{
	check(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
	check(!readable(p) && !readable(p + 4 * PAGE));
	check(!readable(p + 15 * PAGE) && readable(p + 16 * PAGE));
	check(pkey_set(key, 0) == 0);
	check(writable(p) && readable(p + 4 * PAGE));
	check(!writable(p + 4 * PAGE) && writable(p + 8 * PAGE));
}

static void has_the_key(void *arg)
{
	(void)arg;
	check_locked_by_key();
}

/* mprotect leaves the pages their key. */
static void keys_stay(void)
{
	int n;

	key = pkey_alloc(0, 0);
	if (key < 0)
		return; /* not on this machine */
	p = get_pages(bytes);
	fill(p, bytes, 73);
	check(pkey_mprotect(p, 16 * PAGE, PROT_READ, key) == 0);
	check(mprotect(p, 20 * PAGE, PROT_READ | PROT_WRITE) == 0);
	check(mprotect(p + 4 * PAGE, 4 * PAGE, PROT_READ) == 0);
	for (n = 0; n < 3; n++) {
		check_locked_by_key();
		in_child(has_the_key, NULL);
		fill(p + 12 * PAGE, PAGE, 74);
	}
	check(pkey_mprotect(p, 16 * PAGE, PROT_READ | PROT_WRITE, 0) == 0);
	check(pkey_free(key) == 0);
	free(p);
}

int main(void)
{
	pages_init();
	gate_make(to_child);
	protected_all_the_time(); /* before much was rewritten after a fork: then it is no file's */
	keys_stay();
	p = get_pages(bytes);
	fill(page(GUARD), PAGE, 51);
	fill(page(READ_ONLY), RUN * PAGE, 50);
	write_around(1);
	check(mprotect(page(GUARD), PAGE, PROT_NONE) == 0);
	check(mprotect(page(READ_ONLY), RUN * PAGE, PROT_READ) == 0);
	check_protections();
	check_around(1);
	over_forks();
	guards_raise_signals();
	check(mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0);
	check(holds(page(READ_ONLY), RUN * PAGE, 50));
	check(holds(page(GUARD), PAGE, 51));
	freed_protected();
	all_read_only();
	check(mprotect(p, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	check(holds(p, bytes, 72));
	free(p);
	puts("protect: done");
	return 0;
}
