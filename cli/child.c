/* SPDX-License-Identifier: MIT */
/*
 * Runs a program as if we were not there
 *
 * The caller of `cowshed run --report` takes us for the program: it sends us
 * signals and reads our exit status. So we forward signals to the child, and end
 * as the child ended: with its exit status, or by the same signal.
 *
 *      us      block, fork ---------- wait for signals ---- end alike
 *      child         unblock, exec, runs ... ends --'
 *
 * The signals are blocked and waited for, not handled: no handler can run
 * between fork and exec, and the end of the child (SIGCHLD) can't be missed.
 * A signal that the terminal sends (control-C) goes to the whole foreground
 * group; the child has it already and must not get it twice.
 *
 * If exec fails, its error comes through a pipe, which a successful exec closes.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void watched_signals(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGHUP);
	sigaddset(ret, SIGQUIT);
	sigaddset(ret, SIGCHLD);
}

/* In the child: never returns. */
static void exec_or_tell(char **argv, int tell, const sigset_t *mask,
                         const struct sigaction *on_child)
{
	int error;

	sigaction(SIGCHLD, on_child, NULL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(argv[0], argv);
	error = -errno;
	while (write(tell, &error, sizeof error) < 0 && errno == EINTR)
		;
	_exit(127);
}

static int heard(int from)
{
	int error = 0;
	ssize_t n;

	do
		n = read(from, &error, sizeof error);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof error ? error : 0;
}

static void forward(pid_t pid, const siginfo_t *info)
{
	bool from_kernel = info->si_code > 0;

	if (from_kernel && getpgid(pid) == getpgrp())
		return;
	kill(pid, info->si_signo);
}

static int wait_and_forward(pid_t pid)
{
	siginfo_t info;
	sigset_t watched;
	int status;

	watched_signals(&watched);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		int number = sigwaitinfo(&watched, &info);

		if (number > 0 && number != SIGCHLD)
			forward(pid, &info);
	}
	return status;
}

static void drain(void)
{
	static const struct timespec at_once;
	sigset_t watched;

	watched_signals(&watched);
	while (sigtimedwait(&watched, NULL, &at_once) > 0)
		;
}

/* Forks and waits; the signals are blocked, SIGCHLD is not ignored. */
static int fork_and_wait(char **argv, const struct sigaction *on_child,
                         struct cli_child *child)
{
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	child->pid = fork();
	r = child->pid < 0 ? -errno : 0;
	if (child->pid == 0)
		exec_or_tell(argv, ends[1], &child->mask, on_child);
	close(ends[1]);
	if (r == 0)
		r = heard(ends[0]);
	close(ends[0]);
	if (child->pid > 0)
		child->status = wait_and_forward(child->pid);
	return r;
}

int cli_child_run(char **argv, struct cli_child *ret)
{
	struct sigaction normal = {.sa_handler = SIG_DFL}, on_child;
	struct cli_child child = {0};
	sigset_t watched;
	int r;

	watched_signals(&watched);
	sigprocmask(SIG_BLOCK, &watched, &child.mask);
	sigaction(SIGCHLD, &normal, &on_child);
	r = fork_and_wait(argv, &on_child, &child);
	if (r < 0) {
		cli_child_release(&child);
		return r;
	}
	*ret = child;
	return 0;
}

void cli_child_release(struct cli_child *child)
{
	/* A signal that came too late to be forwarded was meant for the child. */
	drain();
	sigprocmask(SIG_SETMASK, &child->mask, NULL);
}

int cli_child_mirror(const struct cli_child *child)
{
	struct sigaction normal = {.sa_handler = SIG_DFL};
	sigset_t fatal;
	int number;

	if (!WIFSIGNALED(child->status))
		return WEXITSTATUS(child->status);
	number = WTERMSIG(child->status);
	fflush(NULL);
	/* The core dump of the child is the useful one. */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	sigaction(number, &normal, NULL);
	sigemptyset(&fatal);
	sigaddset(&fatal, number);
	sigprocmask(SIG_UNBLOCK, &fatal, NULL);
	kill(getpid(), number);
	return 128 + number;
}
