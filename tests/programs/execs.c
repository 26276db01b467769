/* SPDX-License-Identifier: MIT */
/*
 * A busy program becomes another one, in each way that libc has
 *
 * It forked before and rewrites its memory, so that an allocator would like to stop it by a
 * signal. The signal must not be on its way when the new program begins, which would end. A
 * large environment makes an exec long. Lists of arguments and environments must arrive.
 */
#define _GNU_SOURCE
#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

enum { WAYS = 11, ROUNDS = 14 };

extern char **environ;

static char *program;
static char large[100000];

static void becomes(int way)
{
	char *v[] = { program, (char *)"is", (char *)"new", NULL };
	int fd = open(program, O_RDONLY | O_CLOEXEC);

	check(fd >= 0);
	switch (way) {
	case 0: execve(program, v, environ); break;
	case 1: execv(program, v); break;
	case 2: execvp(program, v); break;
	case 3: execvpe(program, v, environ); break;
	case 4: fexecve(fd, v, environ); break;
	case 5: execl(program, program, "is", "new", (char *)NULL); break;
	case 6: execlp(program, program, "is", "new", (char *)NULL); break;
	case 7: execle(program, program, "is", "new", (char *)NULL, environ); break;
	case 8: syscall(SYS_execve, program, v, environ); break;
	case 9: syscall(SYS_execveat, AT_FDCWD, program, v, environ, 0); break;
	default: execveat(AT_FDCWD, program, v, environ, 0);
	}
	check(!"it could be executed");
}

/* A failed exec changes nothing; one in a child of vfork() neither. */
static void fails(void)
{
	pid_t child;

	check(execl("/nowhere/at/all", "x", (char *)NULL) == -1 && errno == ENOENT);
	child = vfork();
	if (child == 0) {
		execl(program, program, "is", "new", (char *)NULL);
		_exit(1);
	}
	finish(child);
}

static void is_busy(void *arg)
{
	int way = *(int *)arg;
	unsigned char *block = get_filled(16 * MIB, 1);
	struct timespec begin, now;
	long ns = 10000000 + getpid() % 100 * 100000;

	if (way == 0)
		fails();
	check(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
	if (fork() == 0)
		_exit(0);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		for (size_t at = 0; at < 16 * MIB; at += PAGE)
			block[at]++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec -
	                 begin.tv_nsec < ns);
	becomes(way);
}

int main(int argc, char **argv)
{
	char name[] = "LARGE_0";

	if (argc > 1) {
		check(argc == 3 && strcmp(argv[1], "is") == 0 &&
		      strcmp(argv[2], "new") == 0);
		check(getenv("LARGE_0") && strlen(getenv("LARGE_0")) == sizeof(large) - 1);
		return 0;
	}
	program = argv[0];
	memset(large, 'x', sizeof(large) - 1);
	for (; name[6] < '8'; name[6]++)
		check(setenv(name, large, 1) == 0);
	for (int i = 0; i < WAYS * ROUNDS; i++) {
		int way = i % WAYS;

		in_child(is_busy, &way);
	}
	puts("execs: done");
	return 0;
}
