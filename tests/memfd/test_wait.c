/* SPDX-License-Identifier: MIT */
/*
 * Locks whose waiters sleep
 *
 * A thread that waits in a loop would keep the holder from running if it has a real-time
 * priority.
 */
#include "memfd/wait.h"
#include "quiet/floor.h"
#include "tests/support/support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4, TURNS = 20000, LOOKS = 3000 };

static uint32_t word, waiter;
static uint64_t count;

static void *counts(void *arg)
{
	for (int i = 0; i < ROUNDS(TURNS); i++) {
		cow__lock(&word);
		count++;
		cow__unlock(&word);
	}
	return arg;
}

START_TEST(one_thread_at_a_time)
{
	pthread_t threads[THREADS];

	count = 0;
	for (int i = 0; i < THREADS; i++)
		must(pthread_create(&threads[i], NULL, counts, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		must(pthread_join(threads[i], NULL) == 0);
	ck_assert_uint_eq(count, (uint64_t)THREADS * (uint64_t)ROUNDS(TURNS));
	ck_assert_uint_eq(word, 0);
}
END_TEST

/* The state of a thread, as /proc has it: 'R' runs, 'S' sleeps. */
static char thread_state(uint32_t id)
{
	char path[64], line[256];
	const char *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%u/stat", id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	must(fd >= 0);
	n = read(fd, line, sizeof(line) - 1);
	must(n > 0);
	close(fd);
	line[n] = '\0';
	end = strrchr(line, ')');
	must(end && end[1] == ' ');
	return end[2];
}

static void wait_until_it_sleeps(void)
{
	uint32_t id;

	for (int looks = 0; looks < LOOKS; looks++) {
		id = __atomic_load_n(&waiter, __ATOMIC_ACQUIRE);
		if (id && thread_state(id) == 'S')
			return;
		usleep(1000);
	}
	ck_abort_msg("it does not sleep");
}

static void *takes(void *arg)
{
	__atomic_store_n(&waiter, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	cow__lock(&word);
	cow__unlock(&word);
	return arg;
}

static void *gets_a_record(void *arg)
{
	__atomic_store_n(&waiter, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	must(cow__park_register((uintptr_t)pthread_self()) != NULL);
	return arg;
}

START_TEST(waiters_sleep)
{
	pthread_t thread;

	waiter = 0;
	cow__lock(&word);
	must(pthread_create(&thread, NULL, takes, NULL) == 0);
	wait_until_it_sleeps();
	cow__unlock(&word);
	must(pthread_join(thread, NULL) == 0);
}
END_TEST

/* A prover has this lock while it moves pages. */
START_TEST(waiters_for_a_prover_sleep)
{
	pthread_t thread;
	struct cow__signals mask;

	waiter = 0;
	cow__park_lock(&mask);
	must(pthread_create(&thread, NULL, gets_a_record, NULL) == 0);
	wait_until_it_sleeps();
	cow__park_unlock(&mask);
	must(pthread_join(thread, NULL) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wait");
	TCase *tcase = add_case(suite, "wait");

	tcase_add_test(tcase, one_thread_at_a_time);
	tcase_add_test(tcase, waiters_sleep);
	tcase_add_test(tcase, waiters_for_a_prover_sleep);
	return run_suite(suite);
}
