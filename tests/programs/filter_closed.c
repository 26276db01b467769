/* SPDX-License-Identifier: MIT */
/*
 * A program closes all descriptors, forbids itself new ones, and sets a filter
 *
 *   filter_closed THREADS    beside so many threads that sleep
 *
 * Many sandboxes begin so. The shim can neither seal the file of the program's memory nor open it
 * again, so it makes copies. The filter must be set, and the memory must be as it was.
 */
#include "program.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (64 * MIB)

static void *sleeps(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(int argc, char **argv)
{
	struct sock_filter allow = { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };
	struct sock_fprog filter = { 1, &allow };
	struct rlimit limit;
	unsigned char *block = malloc(BYTES);
	pthread_t thread;
	pid_t child;

	check(argc == 2 && block != NULL);
	memset(block, 1, BYTES);
	for (int i = 0; i < atoi(argv[1]); i++)
		check(pthread_create(&thread, NULL, sleeps, NULL) == 0);
	child = fork(); /* its memory is frozen from now on */
	if (child == 0)
		_exit(0);
	check(child > 0 && waitpid(child, NULL, 0) == child);
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	for (int fd = 3; fd < 4096; fd++)
		(void)close(fd);
	check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 3;
	check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0);
	for (size_t i = 0; i < BYTES; i++)
		check(block[i] == 1);
	memset(block, 2, BYTES);
	free(block);
	_exit(0);
}
