/* SPDX-License-Identifier: MIT */
/*
 * Fork handlers of the program's own, which allocate
 *
 * The order of registering decides if they run before or after the allocator's. Here
 * some are registered early and some late. The whole malloc family must work in each
 * handler, also while other threads allocate.
 */
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>

static unsigned char *kept, *made;
static int runs[3];
static atomic_bool stop;

static void use_malloc(uint64_t seed)
{
	unsigned char *p = get_filled(300000, seed), *q = calloc(2, MIB);

	check(q != NULL && all(q, 2 * MIB, 0));
	p = realloc(p, MIB);
	check(p != NULL && holds(p, 300000, seed));
	free(q);
	free(p);
}

static void prepare(void)
{
	runs[0]++;
	use_malloc(1);
	check(holds(kept, 2 * MIB, 9));
	free(made);
	made = get_filled(500000, 3);
}

static void parent(void)
{
	runs[1]++;
	check(holds(made, 500000, 3));
	fill(made, 500000, 3);
	use_malloc(2);
}

static void child(void)
{
	runs[2]++;
	check(holds(made, 500000, 3));
	check(holds(kept, 2 * MIB, 9));
	fill(made, 500000, 3);
	use_malloc(3);
}

__attribute__((constructor(102))) static void register_early(void)
{
	kept = get_filled(2 * MIB, 9);
	made = get_filled(500000, 3);
	check(pthread_atfork(prepare, parent, child) == 0);
}

static void in_the_child(void *arg)
{
	check(runs[2] == *(int *)arg);
	check(holds(kept, 2 * MIB, 9));
	fill(kept, 2 * MIB, 10);
	use_malloc(4);
}

static void *make_and_free(void *arg)
{
	while (!atomic_load(&stop))
		use_malloc((uint64_t)(uintptr_t)arg);
	return NULL;
}

int main(void)
{
	pthread_t thread[2];
	int i, expected = 1;

	for (i = 0; i < 5; i++)
		in_child(in_the_child, &expected);
	check(pthread_atfork(prepare, parent, child) == 0);
	expected = 2;
	for (i = 0; i < 5; i++)
		in_child(in_the_child, &expected);
	for (i = 0; i < 2; i++)
		check(pthread_create(&thread[i], NULL, make_and_free,
		                     (void *)(uintptr_t)(i + 7)) == 0);
	for (i = 0; i < 10; i++)
		in_child(in_the_child, &expected);
	atomic_store(&stop, 1);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	check(holds(kept, 2 * MIB, 9));
	printf("fork_hooks: %d %d %d\n", runs[0], runs[1], runs[2]);
	return 0;
}
