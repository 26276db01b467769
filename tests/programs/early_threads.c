/* SPDX-License-Identifier: MIT */
/*
 * Threads that an allocator can't know: begun before it, or made past libc
 *
 * One begins before the constructors of all libraries, one is a bare clone() without libc's
 * data. Each writes a block all the time. Nothing may come home meanwhile, and no write may be
 * missing. The first one waits in a call later, and the second one ends: then all may come home.
 */
#include "healing.h"

#include <sched.h>
#include <sys/syscall.h>

#define BYTES (4 * HUGE_PAGE)

enum { ROUNDS = 5 };

static unsigned char *block;
static int writing, over, ended;
static uint32_t turns;
static int quiet[2];
static pthread_t early;

static uint32_t *word(size_t page)
{
	return (uint32_t *)(void *)(block + page * PAGE);
}

/* One word in each page, until it is told to stop. No call of libc: a bare thread has no
 * data of libc's. */
static void write_all(void)
{
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		for (size_t page = 0; page < BYTES / PAGE; page++)
			++*word(page);
		__atomic_fetch_add(&turns, 1, __ATOMIC_RELEASE);
	}
}

static void check_all(void)
{
	static unsigned char model[BYTES];

	fill(model, BYTES, 2);
	for (size_t page = 0; page < BYTES / PAGE; page++)
		*(uint32_t *)(void *)(model + page * PAGE) += turns;
	check(memcmp(model, block, BYTES) == 0);
}

static void wait_for(const int *flag, int value)
{
	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value)
		rest();
}

/* Beside the thread, which writes. */
static void nothing_comes_home(struct healing *h, enum cow_fallback reason)
{
	uint32_t from;

	while (!(from = __atomic_load_n(&turns, __ATOMIC_ACQUIRE)))
		rest();
	healing_may_begin(h);
	wait_for_refusals(reason, 3);
	while (__atomic_load_n(&turns, __ATOMIC_ACQUIRE) - from < 100)
		rest();
	check(!library() || copied(block, BYTES) == BYTES / PAGE);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
}

/* ---- Begun before ------------------------------------------------------------ */

static void *begins_early(void *arg)
{
	char bytes[5];

	/* No call before its first turn. */
	while (!__atomic_load_n(&writing, __ATOMIC_ACQUIRE))
		;
	do {
		write_all();
		__atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
	} while (read(quiet[0], bytes, 5) == 5);
	return arg;
}

static void preinit(void)
{
	check(pthread_create(&early, NULL, begins_early, NULL) == 0);
}

__attribute__((section(".preinit_array"), used)) static void (*const before)(
	void) = preinit;

static void beside_an_early_thread(int turn)
{
	struct healing h = healing_begin(BYTES);

	block = h.block;
	over = 0;
	turns = 0;
	__atomic_store_n(&writing, 1, __ATOMIC_RELEASE);
	if (turn)
		check(write(quiet[1], "hello", 5) == 5);
	/* With a record it is known to run. */
	nothing_comes_home(&h, turn ? COW_FALLBACK_BUSY : COW_FALLBACK_BLOCKED);
	wait_for(&writing, 0);
	check_all();
	wait_until_copied(block, BYTES, 0);
	check_all();
	healing_end(&h);
}

/* ---- Bare -------------------------------------------------------------------- */

static _Alignas(64) char data[4096]; /* thread-local: it uses none */

static int bare(void *arg)
{
	(void)arg;
	write_all();
	return 0;
}

static void beside_a_bare_thread(void)
{
	static _Alignas(16) char stack[64 << 10];
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
	            CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_SETTLS;
	struct healing h = healing_begin(BYTES);

	block = h.block;
	over = 0;
	turns = 0;
	ended = 1;
	check(clone(bare, stack + sizeof(stack), flags, NULL, NULL, data, &ended) > 0);
	nothing_comes_home(&h, COW_FALLBACK_BLOCKED);
	wait_for(&ended, 0);
	check_all();
	wait_until_copied(block, BYTES, 0);
	check_all();
	healing_end(&h);
}

/* The kernel clears a word of the block when the thread has ended. */
static void cleared_word(void)
{
	static _Alignas(16) char stack[64 << 10];
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
	            CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_SETTLS;
	struct healing h = healing_begin(BYTES);
	int *there = (int *)(void *)(h.block + 3 * PAGE + 64), was = *there;

	block = h.block;
	over = 0;
	turns = 0;
	*there = 1;
	check(clone(bare, stack + sizeof(stack), flags, NULL, NULL, data, there) > 0);
	healing_may_begin(&h);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	wait_for(there, 0);
	wait_until_copied(block, BYTES, 0);
	check(*there == 0);
	*there = was;
	check_all();
	healing_end(&h);
}

int main(void)
{
	gate_make(quiet);
	for (int i = 0; i < ROUNDS; i++) {
		beside_an_early_thread(i);
		beside_a_bare_thread();
		cleared_word();
	}
	puts("early_threads: done");
	return 0;
}
