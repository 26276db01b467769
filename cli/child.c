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
 * All signals are blocked and waited for, not handled: no handler can run
 * between fork and exec, and the end of the child (SIGCHLD) can't be missed. Only
 * SIGKILL and SIGSTOP can't be had.
 * A signal that the terminal sends (control-C) goes to the whole foreground
 * group; the child has it already and must not get it twice.
 *
 * Job control: the shell knows us alone. When a signal of the terminal stops the child, we stop
 * by the same one, so that the shell takes the job for stopped. SIGCONT runs us on and
 * is passed on. A child that SIGSTOP stopped is left to the program that did it, which
 * may continue it by its own number; we would stay stopped.
 *
 * If exec fails, its error comes through a pipe, which a successful exec closes.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* libc leaves out the signals that its threads use, 32 and 33. Another program may send these,
 * too. So the system call is made past it. */
static void set_mask(int how, const sigset_t *set, sigset_t *old)
{
	syscall(SYS_rt_sigprocmask, how, set, old, sizeof(uint64_t));
}

static void all_signals(sigset_t *ret)
{
	memset(ret, 0xff, sizeof *ret);
}

/* In the child: never returns. */
static void exec_or_tell(char **argv, int tell, const sigset_t *mask,
                         const struct sigaction *on_child)
{
	int error;

	sigaction(SIGCHLD, on_child, NULL);
	set_mask(SIG_SETMASK, mask, NULL);
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

static bool is_sent_by_terminals(int number)
{
	switch (number) {
	case SIGINT:
	case SIGQUIT:
	case SIGHUP:
	case SIGCONT:
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
	case SIGWINCH:
		return true;
	}
	return false;
}

static void forward(pid_t pid, const siginfo_t *info)
{
	int number = info->si_signo;
	bool from_kernel = info->si_code > 0;

	if (number == SIGCHLD && from_kernel)
		return; /* the child ended or stopped */
	if (from_kernel && is_sent_by_terminals(number) && getpgid(pid) == getpgrp())
		return;
	if (info->si_code == SI_QUEUE && sigqueue(pid, number, info->si_value) == 0)
		return;
	kill(pid, number);
}

/* Ends or stops this process by a signal, which is blocked. */
static void raise_default(int number)
{
	struct sigaction normal = {.sa_handler = SIG_DFL}, before;
	bool changed = sigaction(number, &normal, &before) == 0;
	const uint64_t bit = 1ull << (number - 1);
	sigset_t one, mask;

	memset(&one, 0, sizeof one);
	memcpy(&one, &bit, sizeof bit); /* as the kernel has it; sigaddset() refuses 32 */
	kill(getpid(), number);
	set_mask(SIG_UNBLOCK, &one, &mask);
	set_mask(SIG_SETMASK, &mask, NULL);
	if (changed)
		sigaction(number, &before, NULL);
}

static int wait_and_forward(pid_t pid)
{
	siginfo_t info;
	sigset_t all;
	int status = 0;
	pid_t r;

	all_signals(&all);
	while ((r = waitpid(pid, &status, WNOHANG | WUNTRACED)) == 0 ||
	       WIFSTOPPED(status)) {
		if (r == 0) {
			if (sigwaitinfo(&all, &info) > 0)
				forward(pid, &info);
		} else if (WSTOPSIG(status) != SIGSTOP &&
		           is_sent_by_terminals(WSTOPSIG(status))) {
			raise_default(WSTOPSIG(status));
		}
		status = 0;
	}
	return status;
}

static void drain(void)
{
	static const struct timespec at_once;
	sigset_t all;

	all_signals(&all);
	while (sigtimedwait(&all, NULL, &at_once) > 0)
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
	sigset_t all;
	int r;

	all_signals(&all);
	set_mask(SIG_BLOCK, &all, &child.mask);
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
	set_mask(SIG_SETMASK, &child->mask, NULL);
}

int cli_child_mirror(const struct cli_child *child)
{
	int number;

	if (!WIFSIGNALED(child->status))
		return WEXITSTATUS(child->status);
	number = WTERMSIG(child->status);
	fflush(NULL);
	/* The core dump of the child is the useful one. */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	raise_default(number);
	return 128 + number;
}
