/* SPDX-License-Identifier: MIT */
/*
 * Threads that are cancelled while they wait, and whose cleanup writes a block
 *
 * A cancelled thread leaves its call in the middle and runs the cleanup of the program. An
 * allocator that takes it for one that waits would lose what the cleanup writes. So nothing may
 * come home while a cancelled thread lives. Once it has ended, all of it may.
 */
#include "healing.h"

#include <sys/syscall.h>

#define BYTES (4 * HUGE_PAGE)

enum { ROUNDS = 40, THREADS = 3 };

static int quiet[2];
static unsigned char *block;
static int waits, go; /* a thread is about to wait, and may */
static int ended;     /* the number of one that has ended, or is about to */

static uint64_t *word(size_t page, size_t thread)
{
	return (uint64_t *)(void *)(block + page * PAGE + 8 * thread);
}

/* One word in each page, which is the thread's own. */
static void writes(void *arg)
{
	size_t thread = (size_t)(uintptr_t)arg, page;

	for (page = 0; page < BYTES / PAGE; page++)
		*word(page, thread) = 1000 + thread;
}

static void wait_for(const int *flag)
{
	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
		rest();
}

/* ---- One that does not end yet -------------------------------------------- */

static void *waits_uncancelled(void *arg)
{
	char bytes[5];

	pthread_cleanup_push(writes, arg);
	check(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
	if (go)
		rest(); /* so that the allocator knows the thread */
	__atomic_store_n(&waits, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		;
	check(read(quiet[0], bytes, 5) == 5);
	check(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

static void check_written(size_t threads)
{
	static unsigned char model[BYTES];
	size_t page, i;

	fill(model, BYTES, 2);
	for (page = 0; page < BYTES / PAGE; page++)
		for (i = 0; i < threads; i++)
			*(uint64_t *)(void *)(model + page * PAGE + 8 * i) = 1000 + i;
	check(memcmp(model, block, BYTES) == 0);
}

/* `waited`: or its first wait begins after it was cancelled. */
static void nothing_beside_a_cancelled_one(int waited)
{
	struct healing h = healing_begin(BYTES);
	pthread_t thread;
	void *result;

	block = h.block;
	waits = 0;
	go = waited;
	check(pthread_create(&thread, NULL, waits_uncancelled, NULL) == 0);
	wait_for(&waits);
	check(pthread_cancel(thread) == 0);
	__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
	healing_may_begin(&h);
	wait_for_refusals(COW_FALLBACK_CANCEL, 3);
	check(!library() || copied(block, BYTES) == BYTES / PAGE);
	check(write(quiet[1], "hello", 5) == 5);
	check(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	check_written(1);
	wait_until_copied(block, BYTES, 0);
	check_written(1);
	healing_end(&h);
}

/* ---- Many, at every moment ------------------------------------------------- */

static void *waits_for_ever(void *arg)
{
	char bytes[5];
	int kind;

	pthread_cleanup_push(writes, arg);
	kind = (uintptr_t)arg == 1 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
	check(pthread_setcanceltype(kind, NULL) == 0);
	__atomic_fetch_add(&waits, 1, __ATOMIC_RELEASE);
	for (;;) {
		switch ((uintptr_t)arg) {
		case 0:
			check(read(quiet[0], bytes, 5) == 5);
			break;
		case 1:
			pause();
			break;
		default:
			nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
		}
	}
	pthread_cleanup_pop(0);
	return NULL;
}

struct later {
	const pthread_t *thread;
	useconds_t us;
};

static void *cancels(void *arg)
{
	struct later l = *(struct later *)arg;

	free(arg);
	usleep(l.us);
	check(pthread_cancel(*l.thread) == 0);
	return NULL;
}

static pthread_t cancel_later(const pthread_t *thread, size_t us)
{
	struct later *l = malloc(sizeof(*l));
	pthread_t canceller;

	check(l != NULL);
	*l = (struct later){ thread, (useconds_t)us };
	check(pthread_create(&canceller, NULL, cancels, l) == 0);
	return canceller;
}

static void cancel_while_it_heals(uint64_t *random)
{
	struct healing h = healing_begin(BYTES);
	pthread_t threads[THREADS], cancellers[THREADS];
	void *result;
	size_t i;

	block = h.block;
	waits = 0;
	for (i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, waits_for_ever,
		                     (void *)(uintptr_t)i) == 0);
	while (__atomic_load_n(&waits, __ATOMIC_ACQUIRE) < THREADS)
		rest();
	for (i = 0; i < THREADS; i++)
		cancellers[i] = cancel_later(&threads[i], below(random, 6000));
	healing_may_begin(&h);
	for (i = 0; i < THREADS; i++)
		check(pthread_join(cancellers[i], NULL) == 0);
	for (i = 0; i < THREADS; i++)
		check(pthread_join(threads[i], &result) == 0 &&
		      result == PTHREAD_CANCELED);
	check_written(THREADS);
	wait_until_copied(block, BYTES, 0);
	check_written(THREADS);
	healing_end(&h);
}

/* ---- One that ended before, and one that never waited ------------------------ */

static void *waits_once(void *arg)
{
	rest();
	__atomic_store_n(&ended, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	return arg;
}

/* It makes no call that waits. */
static void *runs(void *arg)
{
	if (go)
		rest(); /* so that the allocator knows the thread */
	__atomic_store_n(&waits, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		pthread_testcancel();
	return arg;
}

static void heals_after(void *(*body)(void *))
{
	struct healing h = healing_begin(BYTES);
	pthread_t thread;

	block = h.block;
	waits = ended = go = 0;
	check(pthread_create(&thread, NULL, body, NULL) == 0);
	if (body == waits_once) {
		wait_for(&ended);
		while (syscall(SYS_tgkill, getpid(), ended, 0) == 0)
			rest();
	} else {
		wait_for(&waits);
	}
	check(pthread_cancel(thread) == 0);
	check(pthread_join(thread, NULL) == 0);
	healing_may_begin(&h);
	wait_until_copied(block, BYTES, 0);
	check_written(0);
	healing_end(&h);
}

int main(void)
{
	uint64_t random = 3;
	int i;

	gate_make(quiet);
	nothing_beside_a_cancelled_one(1);
	nothing_beside_a_cancelled_one(0);
	for (i = 0; i < ROUNDS; i++)
		cancel_while_it_heals(&random);
	heals_after(waits_once);
	heals_after(runs);
	puts("cancelled: done");
	return 0;
}
