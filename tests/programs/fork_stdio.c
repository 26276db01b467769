/* SPDX-License-Identifier: MIT */
/*
 * fork beside threads that flush all streams, and threads that read lines too long for
 * their buffer. One thread holds the list of streams and waits for a stream. One holds
 * the stream and waits for memory. fork takes the locks of both in an order of its own.
 */
#include "program.h"

#include <pthread.h>
#include <sys/wait.h>

enum { FORKS = 50, LINE = 3 * MIB };

static int stop;

static int stopped(void)
{
	return __atomic_load_n(&stop, __ATOMIC_ACQUIRE);
}

static void *flushes(void *unused)
{
	while (!stopped())
		fflush(NULL);
	return unused;
}

static void *reads(void *unused)
{
	FILE *f = tmpfile();

	check(f != NULL);
	for (int i = 0; i < LINE; i++)
		check(putc('x', f) == 'x');
	while (!stopped()) {
		char *line = NULL;
		size_t bytes = 0;

		rewind(f);
		check(getline(&line, &bytes, f) == LINE);
		free(line);
	}
	check(fclose(f) == 0);
	return unused;
}

int main(void)
{
	pthread_t threads[3];

	check(pthread_create(&threads[0], NULL, flushes, NULL) == 0);
	check(pthread_create(&threads[1], NULL, reads, NULL) == 0);
	check(pthread_create(&threads[2], NULL, reads, NULL) == 0);
	for (int i = 0; i < FORKS; i++) {
		int status;
		pid_t child = fork();

		/* In the child the list is free. */
		if (child == 0) {
			FILE *f = fopen("/dev/null", "r");

			_exit(f == NULL || fclose(f) != 0);
		}
		check(child > 0);
		check(waitpid(child, &status, 0) == child && status == 0);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++)
		check(pthread_join(threads[i], NULL) == 0);
	puts("done");
	return 0;
}
