/* SPDX-License-Identifier: MIT */
/*
 * Clones of one moment that can't be (cow_storages_clone_at_once()): nothing has changed then
 */
#include "core/memory/state.h"
#include "core/program/advise.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct cow_storage *clone_untouched(void)
{
	static int untouched;

	return (void *)&untouched;
}

/* With another storage before it, which would be cloned. */
static void is_refused(struct cow_storage *s, int error)
{
	struct cow_storage *both[2] = { new_storage(MIB, COW_STORAGE_TRANSPARENT), s };
	struct cow_storage *got[2] = { clone_untouched(), clone_untouched() };

	fails(error, cow_storages_clone_at_once(both, 2, NULL, got));
	ck_assert(!got[0] && !got[1]);
	cow_storage_unref(both[0]);
}

START_TEST(storages_of_others)
{
	static unsigned char memory[PAGE];
	struct cow_storage *s;

	ok(cow_storage_new_external(&(struct cow_data_ptr){ .data = memory }, sizeof(memory),
	                            NULL, &s));
	is_refused(s, -ENOTSUP);
	cow_storage_unref(s);
}
END_TEST

START_TEST(no_storages)
{
	struct cow_storage *s = new_storage(MIB, COW_STORAGE_TRANSPARENT), *got[2];
	struct cow_storage *some[2] = { s, NULL };

	got[0] = clone_untouched();
	fails(-EINVAL, cow_storages_clone_at_once(some, 2, NULL, got));
	ck_assert(got[0] == clone_untouched());
	fails(-EINVAL, cow_storages_clone_at_once(NULL, 1, NULL, got));
	fails(-EINVAL, cow_storages_clone_at_once(&s, 1, NULL, NULL));
	ok(cow_storages_clone_at_once(NULL, 0, NULL, NULL));
	cow_storage_unref(s);
}
END_TEST

START_TEST(beside_a_device)
{
	struct cow_storage *s = new_storage(MIB, COW_STORAGE_TRANSPARENT);
	char path[] = "/tmp/cowshed-moment-XXXXXX";
	int fd = mkstemp(path), direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);

	unlink(path);
	close(fd);
	if (direct >= 0) { /* else the file system has no such files */
		is_refused(s, -EBUSY);
		close(direct);
	}
	cow_storage_unref(s);
}
END_TEST

/* As from a signal handler that interrupted the library. */
START_TEST(within_the_library)
{
	struct cow_storage *s = new_storage(MIB, COW_STORAGE_TRANSPARENT), *got;

	cow__engine_lock();
	fails(-EBUSY, cow_storages_clone_at_once(&s, 1, NULL, &got));
	cow__engine_unlock();
	ok(cow_storages_clone_at_once(&s, 1, NULL, &got));
	cow_storage_unref(got);
	cow_storage_unref(s);
}
END_TEST

/* ---- Beside another thread: with a child ---------------------------------- */

static pthread_mutex_t sleeps = PTHREAD_MUTEX_INITIALIZER;

static void *sleep_on(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&sleeps);
	pthread_mutex_unlock(&sleeps);
	return NULL;
}

static pthread_t begin_sleeper(void)
{
	pthread_t thread;

	pthread_mutex_lock(&sleeps);
	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_on, NULL), 0);
	return thread;
}

static void end_sleeper(pthread_t thread)
{
	pthread_mutex_unlock(&sleeps);
	pthread_join(thread, NULL);
}

static void other_namespace(void *arg)
{
	struct cow_storage *s = new_storage(MIB, COW_STORAGE_TRANSPARENT);
	pthread_t thread = begin_sleeper();
	pid_t pid;

	(void)arg;
	if (unshare(CLONE_NEWPID) == 0) /* else it is not for us */
		is_refused(s, -EAGAIN);
	end_sleeper(thread);
	pid = fork(); /* the namespace is as new as it was: it can have a first process */
	if (pid == 0)
		_exit(0);
	ck_assert_int_gt(pid, 0);
	child_finish(pid);
	cow_storage_unref(s);
}

START_TEST(no_first_process_of_a_namespace)
{
	in_child(other_namespace, NULL);
}
END_TEST

static bool map_over(void *at)
{
	return mmap(at, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       at;
}

static void read_it(void *at)
{
	ck_assert_uint_eq(*(unsigned char *)at, 9);
}

/* What the program mapped into a storage is inherited as before. */
START_TEST(mappings_of_the_program)
{
	struct cow_storage *s = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 1), *frozen;
	unsigned char *p = expose(s) + MIB;
	pthread_t thread;

	frozen = lazy(s);
	ok(cow__overmap((uintptr_t)p, MIB, 0, map_over, p));
	*p = 9;
	in_child(read_it, p);
	thread = begin_sleeper();
	is_refused(s, -ENOTSUP);
	end_sleeper(thread);
	in_child(read_it, p);
	cow_storage_unref(frozen);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("moment_refused");
	TCase *tcase = add_case(suite, "refused");

	tcase_add_test(tcase, storages_of_others);
	tcase_add_test(tcase, no_storages);
	tcase_add_test(tcase, beside_a_device);
	tcase_add_test(tcase, within_the_library);
	tcase_add_test(tcase, no_first_process_of_a_namespace);
	if (SANITIZED)
		puts("skip mappings_of_the_program sanitizers have no children for it");
	else
		tcase_add_test(tcase, mappings_of_the_program);
	return run_suite(suite);
}
