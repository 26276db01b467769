/* SPDX-License-Identifier: MIT */
/*
 * fork() in a signal handler, which may interrupt an allocation
 *
 * POSIX allows it, and servers do it to start a helper program. The child only
 * ends or execs. The interrupted call goes on afterwards.
 */
#include "program.h"

#include <signal.h>
#include <sys/time.h>

#define FORKS 200
#define BLOCKS 8

static volatile sig_atomic_t forks, failures;

static void handler(int sig)
{
	int saved = errno, status;
	pid_t child;

	(void)sig;
	child = fork();
	if (child == 0) {
		if (forks % 2)
			execl("/bin/true", "true", (char *)NULL);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		failures++;
	forks++;
	errno = saved;
}

int main(void)
{
	struct itimerval every = { { 0, 1000 }, { 0, 1000 } };
	struct sigaction act = { .sa_handler = handler };
	unsigned char *block[BLOCKS] = { NULL };
	unsigned rounds = 0;

	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	while (forks < FORKS) {
		unsigned i = rounds++ % BLOCKS;
		size_t bytes = (size_t)(1 + rounds % 5) << 20;

		check(!block[i] || block[i][0] == (unsigned char)i);
		free(block[i]);
		block[i] = malloc(bytes);
		check(block[i] != NULL);
		block[i][0] = (unsigned char)i;
		block[i][bytes - 1] = 1;
	}
	memset(&every, 0, sizeof(every));
	setitimer(ITIMER_REAL, &every, NULL);
	check(failures == 0);
	puts("ok");
	return 0;
}
