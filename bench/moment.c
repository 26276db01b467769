/* SPDX-License-Identifier: MIT */
/*
 * Clones of one moment beside threads that write
 *
 * Two threads write a transparent storage all the time: each raises a number at its beginning, and
 * then writes it near its end. A clone is *torn* if the end has a number that the beginning lacks.
 * Lazy clones are taken of the same storage, and counted alike. `call` is the time of the call, beside
 * a fork() of the same process; `gap` the longest time that a writer lost, in a median call, beside
 * the same time without a clone. Bars: 1 ms each, and none torn.
 *
 * `written-P%`: the hundredth clone, where P % of 1 GiB are written before each. Bars: 1 ms, 5 ms.
 */
#include <cowshed.h>

#include "bench/common.h"

#include <pthread.h>

enum { WRITERS = 2, TAKES = 40 };

static char *memory;
static size_t bytes;
static bool over;
static _Atomic uint64_t gaps[WRITERS]; /* ns: the longest since it was set to 0 */

static volatile uint64_t *first_of(int i)
{
	return (volatile uint64_t *)(memory + (size_t)(3 + i) * PAGE);
}

static size_t last_at(int i)
{
	return bytes - (size_t)(3 + i) * PAGE;
}

static void *writer(void *arg)
{
	int me = (int)(intptr_t)arg;
	volatile uint64_t *first = first_of(me), *last = (volatile uint64_t *)(memory + last_at(me));
	double before = now_ns(), now;

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		*first = *first + 1;
		*last = *first;
		now = now_ns();
		if ((uint64_t)(now - before) > gaps[me])
			gaps[me] = (uint64_t)(now - before);
		before = now;
	}
	return NULL;
}

static bool is_torn(struct cow_storage *clone)
{
	const char *p = cow_storage_data(clone);

	for (int i = 0; i < WRITERS; i++)
		if (*(const uint64_t *)(p + last_at(i)) >
		    *(const uint64_t *)(p + ((char *)first_of(i) - memory)))
			return true;
	return false;
}

static void take_gap(struct series *to)
{
	series_add(to, (double)(gaps[0] > gaps[1] ? gaps[0] : gaps[1]) / 1e3);
}

static void forget_gaps(void)
{
	gaps[0] = gaps[1] = 0;
}

/* One clone, and a pause as long without one. */
static int take(struct cow_storage *s, bool at_once, struct series *call, struct series *gap,
                struct series *idle)
{
	struct cow_storage *clone;
	double t0;
	int torn;

	forget_gaps();
	t0 = now_ns();
	must(at_once ? cow_storages_clone_at_once(&s, 1, NULL, &clone)
	             : cow_storage_lazy_clone(s, &clone));
	series_add(call, us_since(t0));
	take_gap(gap);
	torn = is_torn(clone);
	cow_storage_unref(clone);
	forget_gaps();
	sleep_ms(2);
	take_gap(idle);
	return torn;
}

static void fork_here(struct series *to)
{
	double us;
	pid_t pid = forked(&us);

	if (pid == 0)
		_exit(0);
	reap(pid);
	series_add(to, us);
}

static struct cow_storage *storage_of(size_t size)
{
	struct cow_storage_options options = { .size = sizeof(options),
		                               .flags = COW_STORAGE_TRANSPARENT };
	struct cow_storage *s;
	void *p;

	must(cow_storage_new(size, &options, &s));
	must(cow_storage_data_mut(s, &p));
	memory = p;
	bytes = size;
	memset(memory, 0, bytes);
	return s;
}

static void beside_writers(size_t size)
{
	struct series call = { 0 }, lazy = { 0 }, forks = { 0 }, gap = { 0 }, idle = { 0 }, none = { 0 };
	struct cow_storage *s = storage_of(size);
	int torn = 0, torn_lazy = 0, takes = rounds(5) * TAKES;
	pthread_t threads[WRITERS];

	over = false;
	for (int i = 0; i < WRITERS; i++)
		must(-pthread_create(&threads[i], NULL, writer, (void *)(intptr_t)i));
	for (int i = 0; i < takes; i++) {
		torn += take(s, true, &call, &gap, &idle);
		torn_lazy += take(s, false, &lazy, &none, &none);
		fork_here(&forks);
	}
	over = true;
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	report(named("%s/call", size_name(size)), "us", &call, &forks, BAR_OURS, 1000);
	report(named("%s/gap", size_name(size)), "us", &gap, &idle, BAR_OURS, 1000);
	report_one(named("%s/torn", size_name(size)), "clones", torn, BAR_OURS, 0);
	report_one(named("%s/torn/lazy-clone", size_name(size)), "clones", torn_lazy, BAR_NONE, 0);
	cow_storage_unref(s);
}

static void *sleeper(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		sleep_ms(1);
	return NULL;
}

static void written_between(size_t size, size_t percent, double bar)
{
	struct cow_storage *s = storage_of(size), *clone = NULL, *next;
	struct series call = { 0 };
	uint64_t random = RANDOM_START;
	pthread_t thread;
	double t0;

	over = false;
	must(-pthread_create(&thread, NULL, sleeper, NULL));
	for (int i = 1; i <= 100; i++) {
		for (size_t n = size / 100 * percent / PAGE; n; n--)
			memory[random_next(&random) % size] ^= 1;
		t0 = now_ns();
		must(cow_storages_clone_at_once(&s, 1, NULL, &next));
		if (i > 95) /* the hundredth, and those before it */
			series_add(&call, us_since(t0));
		clone = cow_storage_unref(clone);
		clone = next;
	}
	over = true;
	pthread_join(thread, NULL);
	report(named("hundredth/written-%zu%%", percent), "us", &call, NULL, BAR_OURS, bar);
	cow_storage_unref(clone);
	cow_storage_unref(s);
}

int main(void)
{
	static const size_t sizes[] = { 256 * MIB, GIB, 4 * GIB };

	for (size_t i = 0; i < COUNT_OF(sizes); i++)
		beside_writers(sized(sizes[i]));
	written_between(sized(GIB), 1, 1000);
	written_between(sized(GIB), 30, 5000);
	return 0;
}
