/* SPDX-License-Identifier: MIT */
/*
 * Prints the number of each signal that it gets, and the value that came with it, until SIGTERM
 *
 * It blocks all of them, also those that libc keeps for itself. Its own number comes first.
 * "send PID": sends each signal to that process instead, in order, but those that can't be
 * blocked and SIGTERM, and reads a line from stdin after each, in which the signal's number must be.
 * "die N": ends by signal N.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int print_them(void)
{
	unsigned char all[8];
	siginfo_t info;

	memset(all, 0xff, sizeof all);
	if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, all, NULL, sizeof all) < 0)
		return 1;
	printf("%ld\n", (long)getpid());
	fflush(stdout);
	for (;;) {
		long n = syscall(SYS_rt_sigtimedwait, all, &info, NULL, sizeof all);

		if (n == SIGTERM)
			return 3;
		if (n > 0)
			printf("%ld %d\n", n, info.si_code == SI_QUEUE ? info.si_value.sival_int : 0);
		fflush(stdout);
	}
}

/* past libc, which refuses its own */
static int queue(pid_t pid, int number, int value)
{
	siginfo_t info;

	memset(&info, 0, sizeof info);
	info.si_signo = number;
	info.si_code = SI_QUEUE;
	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_value.sival_int = value;
	return (int)syscall(SYS_rt_sigqueueinfo, pid, number, &info);
}

static int send_all(pid_t pid)
{
	char line[80], wanted[80];

	for (int n = 1; n <= 64; n++) {
		int value = n >= 34 ? 1000 + n : 0;

		if (n == SIGKILL || n == SIGSTOP || n == SIGTERM)
			continue;
		if ((value ? queue(pid, n, value) : kill(pid, n)) < 0)
			return fprintf(stderr, "can't send %d: %s\n", n, strerror(errno)), 1;
		snprintf(wanted, sizeof wanted, "%d %d\n", n, value);
		if (!fgets(line, sizeof line, stdin) || strcmp(line, wanted) != 0)
			return fprintf(stderr, "sent %d, got: %s\n", n, line), 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "send") == 0)
		return send_all((pid_t)atol(argv[2]));
	if (argc == 3 && strcmp(argv[1], "die") == 0) {
		/* Who was started by posix_spawn() ignores libc's own, and libc does not say so. */
		unsigned long action[4] = { 0, 0, 0, 0 };

		(void)syscall(SYS_rt_sigaction, atoi(argv[2]), action, NULL, 8);
		kill(getpid(), atoi(argv[2]));
		return 1;
	}
	return print_them();
}
