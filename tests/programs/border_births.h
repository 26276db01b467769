/* SPDX-License-Identifier: MIT */
/*
 * How a child comes to be
 *
 * make() runs body() in a child, which does not return, and returns its number, or -1 with
 * errno where the kernel lacks the call. A child that is `born` a stranger makes no call of
 * its own that gives something up.
 */
#ifndef COWSHED_TESTS_BORDER_BIRTHS_H
#define COWSHED_TESTS_BORDER_BIRTHS_H

#include "border.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

struct birth {
	const char *name;
	pid_t (*make)(void (*)(void));
	int born, root;
};

extern pid_t _Fork(void) __attribute__((weak));

static void (*birth_body)(void);
static char birth_stack[256 * KIB] __attribute__((aligned(16)));

static pid_t in_born(pid_t pid)
{
	if (pid != 0)
		return pid;
	birth_body();
	leave();
}

static pid_t born_fork(void (*body)(void))
{
	birth_body = body;
	return in_born(fork());
}

static pid_t born_bare_fork(void (*body)(void))
{
	birth_body = body;
	if (!_Fork) {
		errno = ENOSYS;
		return -1;
	}
	return in_born(_Fork());
}

static int born_in_clone(void *arg)
{
	(void)arg;
	birth_body();
	leave();
}

static pid_t clone_with(int flags, void (*body)(void))
{
	birth_body = body;
	return clone(born_in_clone, birth_stack + sizeof(birth_stack), flags | SIGCHLD, NULL);
}

static pid_t number_with(int flags, void (*body)(void))
{
	birth_body = body;
	return in_born((pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0));
}

static pid_t clone3_with(unsigned flags, void (*body)(void))
{
	struct clone_args args = { .flags = flags, .exit_signal = SIGCHLD };

	birth_body = body;
	return in_born((pid_t)syscall(SYS_clone3, &args, sizeof(args)));
}

static pid_t born_number_fork(void (*body)(void))
{
#ifdef SYS_fork
	birth_body = body;
	return in_born((pid_t)syscall(SYS_fork));
#else
	return number_with(0, body);
#endif
}

static pid_t born_clone(void (*body)(void)) { return clone_with(0, body); }
static pid_t born_number(void (*body)(void)) { return number_with(0, body); }
static pid_t born_clone3(void (*body)(void)) { return clone3_with(0, body); }
static pid_t born_user(void (*body)(void)) { return clone_with(CLONE_NEWUSER, body); }
static pid_t born_user_number(void (*body)(void)) { return number_with(CLONE_NEWUSER, body); }
static pid_t born_user_clone3(void (*body)(void)) { return clone3_with(CLONE_NEWUSER, body); }
static pid_t born_pid(void (*body)(void)) { return clone_with(CLONE_NEWPID, body); }
static pid_t born_pid_number(void (*body)(void)) { return number_with(CLONE_NEWPID, body); }

static pid_t born_user_pid(void (*body)(void))
{
	return clone_with(CLONE_NEWUSER | CLONE_NEWPID, body);
}

/* One table of descriptors for both. The border gives up the child's alone. */
static pid_t born_files(void (*body)(void)) { return clone_with(CLONE_FILES, body); }
static pid_t born_files_number(void (*body)(void)) { return number_with(CLONE_FILES, body); }

/* ---- By a thread that dropped alone: the others keep their privileges ------- */

static pid_t thread_child;
static long (*thread_call)(long, ...);

static void *forks(void *arg)
{
	thread_child = ((pid_t(*)(void (*)(void)))arg)(birth_body);
	return NULL;
}

static void *drops_alone(void *arg)
{
	if (thread_call(SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0)
		(void)forks(arg);
	return NULL;
}

static pid_t in_thread(void (*body)(void), pid_t (*make)(void (*)(void)))
{
	pthread_t t;

	thread_child = -1;
	birth_body = body;
	check(pthread_create(&t, NULL, drops_alone, (void *)make) == 0);
	check(pthread_join(t, NULL) == 0);
	return thread_child;
}

static long unseen(long n, ...)
{
	(void)n;
	return raw(SYS_setresuid, NOBODY, NOBODY, NOBODY, 0, 0, 0);
}

static pid_t born_thread(void (*body)(void))
{
	thread_call = syscall;
	return in_thread(body, born_fork);
}

static pid_t born_thread_number(void (*body)(void))
{
	thread_call = syscall;
	return in_thread(body, born_number);
}

/* No wrapper sees the call of the thread. The fork has to look. */
static pid_t born_thread_unseen(void (*body)(void))
{
	thread_call = unseen;
	return in_thread(body, born_fork);
}
static void *makes_thread(void *arg)
{
	pthread_t t;

	if (syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) != 0)
		return NULL;
	check(pthread_create(&t, NULL, forks, arg) == 0);
	check(pthread_join(t, NULL) == 0);
	return NULL;
}

/* A thread that dropped made the one that forks. */
static pid_t born_threads_thread(void (*body)(void))
{
	pthread_t t;

	thread_child = -1;
	birth_body = body;
	check(pthread_create(&t, NULL, makes_thread, (void *)born_fork) == 0);
	check(pthread_join(t, NULL) == 0);
	return thread_child;
}

/* The parent itself stays in its namespace. */
static pid_t born_later_pid(void (*body)(void))
{
	return unshare(CLONE_NEWPID) == 0 ? born_fork(body) : -1;
}

static const struct birth births[] = {
	{ "fork", born_fork, 0, 0 },
	{ "_Fork", born_bare_fork, 0, 0 },
	{ "clone", born_clone, 0, 0 },
	{ "number-fork", born_number_fork, 0, 0 },
	{ "number-clone", born_number, 0, 0 },
	{ "number-clone3", born_clone3, 0, 0 },
	{ "files", born_files, 0, 0 },
	{ "files-number", born_files_number, 0, 0 },
	{ "new-user", born_user, 1, 0 },
	{ "new-user-number", born_user_number, 1, 0 },
	{ "new-user-clone3", born_user_clone3, 1, 0 },
	{ "new-pid", born_pid, 1, 1 },
	{ "new-pid-number", born_pid_number, 1, 1 },
	{ "new-user-pid", born_user_pid, 1, 0 },
	{ "thread", born_thread, 1, 1 },
	{ "thread-number", born_thread_number, 1, 1 },
	{ "thread-thread", born_threads_thread, 1, 1 },
	{ "new-pid-later", born_later_pid, 1, 1 },
	{ "thread-unseen", born_thread_unseen, 1, 1 },
};

#endif
