/* SPDX-License-Identifier: MIT */
/*
 * Children of vfork() that allocate, write and free
 *
 * Such a child is a process of its own in its parent's memory, and all that it writes
 * there stays. A thread that it starts, and its report, belong to it alone and end with
 * it. The other threads of the parent run meanwhile.
 */
#include "memory.h"
#include "writer.h"

#include <sys/resource.h>
#include <time.h>

enum { VFORKS = 20 };

static void ends(void *arg)
{
	(void)arg;
}

static void use_malloc(size_t bytes, int times)
{
	unsigned char *p;
	int i;

	for (i = 0; i < times; i++) {
		p = get_filled(bytes, (uint64_t)i);
		check(holds(p, bytes, (uint64_t)i));
		free(p);
	}
}

static void by_vfork(int execs)
{
	static char *argv[] = { (char *)"true", NULL };
	int status;
	pid_t child = vfork();

	check(child >= 0);
	if (child == 0) {
		use_malloc(2 * MIB, 8);
		use_malloc(40 * MIB, 1);
		if (execs)
			execv("/bin/true", argv);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child && status == 0);
}

/* A limit that the child sets is its own. */
static void limit_in_vfork(int what)
{
	static const struct rlimit limit = { 64 * MIB, RLIM_INFINITY };
	int status;
	pid_t child = vfork();

	check(child >= 0);
	if (child == 0)
		_exit(setrlimit(what, &limit) != 0 ||
		      prlimit(0, what, &limit, NULL) != 0);
	check(waitpid(child, &status, 0) == child && status == 0);
}

/* Where memory is kept in memfds it still is. */
static void limits_of_children(void)
{
	static const int limits[] = { RLIMIT_AS, RLIMIT_DATA };
	unsigned char *p = get_filled(40 * MIB, 1);
	int in_memfds = held_now().memfd >= 40 * MIB;
	size_t i;

	for (i = 0; i < COUNT(limits); i++) {
		limit_in_vfork(limits[i]);
		free(p);
		p = get_filled(100 * MIB, i);
		check(!in_memfds || held_now().memfd >= 100 * MIB);
	}
	free(p);
}

/* The helper still gives free memory back, though no call comes. */
static void memory_goes_back(void)
{
	int looks;

	free(get_filled(64 * MIB, 1));
	for (looks = 0; held_now().memfd > 32 * MIB; looks++) {
		check(looks < 1000);
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

int main(void)
{
	pthread_t thread;
	int n;

	words = calloc(WORDS * stride, sizeof(*words));
	check(words != NULL);
	by_vfork(1);
	memory_goes_back();
	limits_of_children();
	check(pthread_create(&thread, NULL, write_and_look, NULL) == 0);
	for (n = 0; n < VFORKS; n++) {
		in_child(ends, NULL);
		by_vfork(n % 2);
	}
	atomic_store(&stop, 1);
	pthread_join(thread, NULL);
	free((void *)words);
	puts("vforks: done");
	return 0;
}
