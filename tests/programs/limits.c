/* SPDX-License-Identifier: MIT */
/*
 * Small limits: memory below the limit can be used, and more is ENOMEM
 *
 * Each limit is set in a child: in some before the first large block, in others
 * with large blocks alive.
 */
#include "program.h"

#include <signal.h>
#include <sys/resource.h>

/* There are two calls for it. */
static int other_call;

static void limit(int what, rlim_t most)
{
	struct rlimit both = { most, most }, old;

	check((other_call ? prlimit(0, what, &both, &old) : setrlimit(what, &both)) == 0);
}

static void reads(void *arg)
{
	check(holds(arg, 3 * MIB, 2));
	fill(arg, 3 * MIB, 4);
	check(holds(arg, 3 * MIB, 4));
}

/* A normal life on a few megabytes. */
static void live(void)
{
	unsigned char *p = get_filled(3 * MIB, 2), *q, *r = NULL;
	int i;

	in_child(reads, p);
	check(holds(p, 3 * MIB, 2));
	for (i = 1; i < 20; i++) {
		q = calloc(1, (size_t)i * 100000);
		check(q != NULL && all(q, (size_t)i * 100000, 0));
		r = realloc(r, (size_t)i * 200000);
		check(r != NULL);
		fill(r, (size_t)i * 200000, 3);
		fill(q, (size_t)i * 100000, 1);
		check(holds(r, (size_t)i * 200000, 3));
		free(q);
	}
	in_child(reads, p);
	check(holds(p, 3 * MIB, 2));
	free(r);
	free(p);
}

static void address_space(void *arg)
{
	unsigned char *kept = arg ? get_filled(3 * MIB, 5) : NULL;
	void *volatile p;

	limit(RLIMIT_AS, 512 * MIB);
	live();
	errno = 0;
	p = malloc(1024 * MIB);
	check(p == NULL && errno == ENOMEM);
	errno = 0;
	p = calloc(600, MIB);
	check(p == NULL && errno == ENOMEM);
	live();
	check(kept == NULL || holds(kept, 3 * MIB, 5));
	free(kept);
}

static void private_memory(void *arg)
{
	unsigned char *kept = arg ? get_filled(3 * MIB, 5) : NULL;
	void *volatile p;
	int i;

	limit(RLIMIT_DATA, 192 * MIB);
	live();
	errno = 0;
	p = malloc(512 * MIB);
	check(p == NULL && errno == ENOMEM);
	errno = 0;
	p = calloc(300, MIB);
	check(p == NULL && errno == ENOMEM);
	/* What was freed does not count. */
	for (i = 0; i < 5; i++)
		free(get_filled((size_t)(30 + i) * MIB, 6));
	for (i = 0; i < 5; i++)
		free(memset(get((size_t)(120 + i) * MIB), 1, MIB));
	live();
	check(kept == NULL || holds(kept, 3 * MIB, 5));
	free(kept);
}

/* No file may grow, but memory is no file. */
static void file_size(void *arg)
{
	unsigned char *kept = arg ? get_filled(3 * MIB, 5) : NULL, *p;

	limit(RLIMIT_FSIZE, 0);
	live();
	p = get_filled(40 * MIB, 6);
	check(holds(p, 40 * MIB, 6));
	free(p);
	check(kept == NULL || holds(kept, 3 * MIB, 5));
	free(kept);
}

static void descriptors(void *arg)
{
	unsigned char *kept = arg ? get_filled(3 * MIB, 5) : NULL, *p;

	limit(RLIMIT_NOFILE, 3);
	live();
	p = get_filled(40 * MIB, 6);
	check(holds(p, 40 * MIB, 6));
	free(p);
	check(kept == NULL || holds(kept, 3 * MIB, 5));
	free(kept);
}

/* No further process, and so no further thread. Root has no such limit. Other processes of the
 * user count, so it must be a user without any. */
static void processes(void *arg)
{
	unsigned char *p;

	(void)arg;
	if (getuid() == 0)
		check(setuid(60000 + (uid_t)getpid() % 5000) == 0);
	limit(RLIMIT_NPROC, 0);
	check(fork() == -1 && errno == EAGAIN);
	p = get_filled(200 * MIB, 6);
	check(holds(p, 200 * MIB, 6));
	free(p);
	p = get_filled(100 * MIB, 7);
	check(holds(p, 100 * MIB, 7));
	free(p);
}

static void locked_memory(void *arg)
{
	(void)arg;
	limit(RLIMIT_MEMLOCK, 0);
	live();
}

int main(void)
{
	static void (*const limits[])(void *) = {
		address_space, private_memory, file_size,
		descriptors,   processes,      locked_memory,
	};
	static const char *const names[] = {
		"address space", "private memory", "file size",
		"descriptors",   "processes",      "locked memory",
	};
	size_t i;

	for (i = 0; i < COUNT(limits); i++) {
		in_child(limits[i], NULL);
		in_child(limits[i], &i);
		printf("limits: %s\n", names[i]);
	}
	/* Once more, with memory that was there before the forks. */
	live();
	other_call = 1;
	for (i = 0; i < COUNT(limits); i++)
		in_child(limits[i], &i);
	live();
	puts("limits: done");
	return 0;
}
