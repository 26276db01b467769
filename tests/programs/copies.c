/* SPDX-License-Identifier: MIT */
/*
 * memcpy and memmove copy, for any later use of either side
 *
 * Large blocks that are copied, written, copied on and back, moved within
 * themselves, freed in any order, in threads, in children and in a signal
 * handler. The same code runs again and again, so that copies=auto learns.
 */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

/* What fortified programs call for memmove; not every libc has it. */
void *__memmove_chk(void *to, const void *from, size_t bytes, size_t room)
	__attribute__((weak));

static const size_t sizes[] = {
	1, 100, 4096, MIB, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 3 * MIB + 4097,
	4 * MIB,
};

/* From a constructor of ours, which may be earlier than others'. */
static int early;

__attribute__((constructor)) static void before_main(void)
{
	char from[] = "early", to[sizeof(from)];

	memcpy(to, from, sizeof(from));
	memmove(to + 1, to, 3);
	early = memcmp(to, "eeary", 6) == 0;
}

static void sides(size_t bytes, int write)
{
	unsigned char *a = get_filled(bytes, 1), *b = get(bytes);
	unsigned char *c = get(bytes);

	check(memcpy(b, a, bytes) == b);
	if (write & 1)
		memset(a, 5, bytes);
	check(holds(b, bytes, 1));
	check(memmove(c, b, bytes) == c);
	if (write & 2)
		memset(b + bytes / 2, 6, bytes - bytes / 2);
	check(holds(c, bytes, 1));
	if (write & 4)
		fill(c, bytes, 7);
	check(write & 1 ? all(a, bytes, 5) : holds(a, bytes, 1));
	check(write & 2 ? all(b + bytes / 2, bytes - bytes / 2, 6)
	                : holds(b, bytes, 1));
	free(b);
	memcpy(a, c, bytes);
	free(c);
	check(holds(a, bytes, write & 4 ? 7 : 1));
	free(a);
}

static void fortified(size_t bytes)
{
	unsigned char *a = get_filled(bytes, 1), *b = get(bytes);

	check(__memmove_chk(b, a, bytes, bytes + 1) == b);
	memset(a, 2, bytes);
	check(holds(b, bytes, 1));
	free(a);
	free(b);
}

static void overlapping(size_t bytes)
{
	unsigned char *a = get_filled(bytes + 3 * PAGE, 3);
	unsigned char *b = get(bytes);

	memmove(a + 2 * PAGE, a, bytes);
	check(holds(a + 2 * PAGE, bytes, 3));
	memmove(a, a + 2 * PAGE, bytes);
	check(holds(a, bytes, 3));
	memmove(a + 1, a, bytes);
	check(holds(a + 1, bytes, 3));
	memcpy(b, a + 1, bytes);
	check(holds(b, bytes, 3));
	free(a);
	free(b);
}

/* Guard pages, discarded and unmapped parts on either side. */
static void odd_pages(void)
{
	size_t bytes = 4 * MIB;
	unsigned char *a = get_pages(bytes), *b = get_pages(bytes);

	fill(a, bytes, 1);
	memcpy(b, a, bytes);
	check(madvise(b + 16 * PAGE, PAGE, MADV_DONTNEED) == 0);
	check(all(b + 16 * PAGE, PAGE, 0));
	check(holds(a, bytes, 1) && holds(b, 16 * PAGE, 1));
	memcpy(b, a, bytes);
	check(holds(b, bytes, 1));
	check(mprotect(a, PAGE, PROT_READ) == 0);
	memcpy(b, a, bytes);
	check(holds(b, bytes, 1));
	check(mprotect(a, PAGE, PROT_READ | PROT_WRITE) == 0);
	check(mprotect(b + PAGE, PAGE, PROT_NONE) == 0);
	check(mprotect(b + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	memcpy(b, a, bytes);
	memset(a, 1, bytes);
	check(madvise(a, bytes, MADV_DONTNEED) == 0);
	check(all(a, bytes, 0) && holds(b, bytes, 1));
	free(a);
	b = realloc(b, 3 * bytes);
	check(b != NULL && holds(b, bytes, 1));
	free(b);
}

static void writes(void *arg)
{
	unsigned char **p = arg;

	check(holds(p[0], 3 * MIB, 1) && holds(p[1], 3 * MIB, 1));
	fill(p[0], 3 * MIB, 2);
	check(holds(p[1], 3 * MIB, 1));
	memcpy(p[1], p[0], 3 * MIB);
	memset(p[0], 0, 3 * MIB);
	check(holds(p[1], 3 * MIB, 2));
	free(p[0]);
	free(p[1]);
}

static void children(void)
{
	unsigned char *p[2] = { get_filled(3 * MIB, 1), get(3 * MIB) };
	int i;

	for (i = 0; i < 6; i++) {
		memcpy(p[1], p[0], 3 * MIB);
		in_child(writes, p);
		check(holds(p[0], 3 * MIB, 1) && holds(p[1], 3 * MIB, 1));
		if (i & 1)
			fill(p[i >> 1 & 1], 3 * MIB, 1);
	}
	free(p[0]);
	free(p[1]);
}

/* Each copies from one that all share to its own, and on. */
static void *copier(void *arg)
{
	int n;

	for (n = 0; n < 12; n++) {
		unsigned char *a = get(2 * MIB), *b = get(2 * MIB);

		memcpy(a, arg, 2 * MIB);
		memcpy(b, a, 2 * MIB);
		if (n & 1)
			fill(a, 2 * MIB, (uint64_t)n);
		free(a);
		check(holds(b, 2 * MIB, 9));
		free(b);
	}
	return arg;
}

/* A writer beside the copies, in the part that is not copied. */
static unsigned char *shared;
static int stop;

static void *scribbler(void *arg)
{
	unsigned char n = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		shared[3 * MIB]++;
		check(shared[3 * MIB] == ++n);
	}
	return arg;
}

static void threads(void)
{
	pthread_t thread[4], beside;
	int i;

	shared = get_filled(4 * MIB, 9);
	shared[3 * MIB] = 0;
	check(pthread_create(&beside, NULL, scribbler, NULL) == 0);
	for (i = 0; i < 4; i++)
		check(pthread_create(&thread[i], NULL, copier, shared) == 0);
	for (i = 0; i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	check(pthread_join(beside, NULL) == 0);
	free(shared);
}

static unsigned char *from_handler, *to_handler;
static volatile sig_atomic_t handled;

static void on_alarm(int number)
{
	(void)number;
	memcpy(to_handler, from_handler, 2 * MIB);
	handled++;
}

/* While the thread that is interrupted allocates. */
static void in_handlers(void)
{
	struct sigaction action = { .sa_handler = on_alarm,
		                    .sa_flags = SA_RESTART };
	struct itimerspec every = { { 0, 1000000 }, { 0, 1000000 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
		                  .sigev_signo = SIGALRM };
	timer_t timer;
	int i;

	from_handler = get_filled(2 * MIB, 4);
	to_handler = get(2 * MIB);
	check(sigaction(SIGALRM, &action, NULL) == 0);
	check(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	check(timer_settime(timer, 0, &every, NULL) == 0);
	for (i = 0; handled < 20 || i < 200; i++) {
		unsigned char *p = get(3 * MIB);

		p[i] = 1;
		free(p);
	}
	check(timer_delete(timer) == 0);
	check(holds(to_handler, 2 * MIB, 4));
	free(from_handler);
	free(to_handler);
}

int main(void)
{
	size_t i;
	int n;

	check(early);
	for (i = 0; i < COUNT(sizes); i++) {
		for (n = 0; n < 8; n++)
			sides(sizes[i], n);
		for (n = 0; n < 4; n++)
			sides(sizes[i], 0);
		overlapping(sizes[i]);
		if (__memmove_chk)
			fortified(sizes[i]);
	}
	odd_pages();
	children();
	threads();
	in_handlers();
	printf("copies: %zu sizes\n", COUNT(sizes));
	return 0;
}
