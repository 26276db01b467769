/* SPDX-License-Identifier: MIT */
/*
 * What the kernel and libc write for a thread that sleeps, into a block that comes home
 *
 * As kernel_writes.c, for the rest of a sleep, the status of a child, the facts of a signal,
 * semaphores, mutexes and condition variables. A mutex that is robust or inherits priorities
 * lies in lists of libc and the kernel: nothing may move beside a wait with one, unless only
 * another thread of the program can end the wait.
 */
#include "parked.h"

#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>

extern char **environ;

static pid_t other;
static int to_other[2];

static void wake_by_signal(void)
{
	pthread_kill(waiter, SIGUSR1);
}

static void nothing(int sig)
{
	(void)sig;
}

/* The handler does nothing, but the call ends. */
static void wake_by_handler(void)
{
	while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) {
		pthread_kill(waiter, SIGUSR2);
		rest();
	}
}

static size_t sleep_by(unsigned char *at, int clock)
{
	struct timespec *left = (void *)at, minute = { .tv_sec = 60 };

	*left = (struct timespec){ 1000, 1000 };
	if (clock)
		check(clock_nanosleep(CLOCK_MONOTONIC, 0, &minute, left) == EINTR);
	else
		check(nanosleep(&minute, left) == -1 && errno == EINTR);
	/* What is left counts from the latest end that the timer may have. */
	check(left->tv_sec <= 60 && left->tv_nsec < 1000000000);
	return sizeof(*left);
}

static size_t by_nanosleep(unsigned char *at)
{
	return sleep_by(at, 0);
}

static size_t by_clock_nanosleep(unsigned char *at)
{
	return sleep_by(at, 1);
}

struct outcome {
	int status;
	siginfo_t info;
	struct rusage usage;
};

/* The other process shares nothing with us: it would keep the pages. */
static void start_other(void)
{
	static char *argv[] = { (char *)"sh", (char *)"-c", (char *)"read x; exit 3", NULL };
	posix_spawn_file_actions_t actions;

	check(posix_spawn_file_actions_init(&actions) == 0);
	check(posix_spawn_file_actions_adddup2(&actions, to_other[0], 0) == 0);
	check(posix_spawn(&other, "/bin/sh", &actions, NULL, argv, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
}

static void wake_by_end(void)
{
	check(write(to_other[1], "\n", 1) == 1);
}

static size_t by_waitpid(unsigned char *at)
{
	struct outcome *e = (void *)at;

	start_other();
	e->status = 0x77;
	check(waitpid(other, &e->status, 0) == other);
	check(WIFEXITED(e->status) && WEXITSTATUS(e->status) == 3);
	return sizeof(*e);
}

static size_t by_wait4(unsigned char *at)
{
	struct outcome *e = (void *)at;

	start_other();
	memset(e, 0x77, sizeof(*e));
	check(wait4(other, &e->status, 0, &e->usage) == other);
	check(WIFEXITED(e->status) && WEXITSTATUS(e->status) == 3);
	check(e->usage.ru_maxrss > 0 && e->usage.ru_maxrss < 1 << 30);
	return sizeof(*e);
}

static size_t by_waitid(unsigned char *at)
{
	struct outcome *e = (void *)at;

	start_other();
	memset(e, 0x77, sizeof(*e));
	check(waitid(P_PID, (id_t)other, &e->info, WEXITED) == 0);
	check(e->info.si_pid == other && e->info.si_status == 3);
	check(e->info.si_signo == SIGCHLD && e->info.si_code == CLD_EXITED);
	return sizeof(*e);
}

static sigset_t only_usr1(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return set;
}

static size_t by_sigwait(unsigned char *at)
{
	sigset_t set = only_usr1();

	check(sigwait(&set, (int *)(void *)at) == 0 && *(int *)(void *)at == SIGUSR1);
	return sizeof(int);
}

static size_t wait_for_info(unsigned char *at, const struct timespec *until)
{
	siginfo_t *info = (void *)at;
	sigset_t set = only_usr1();
	int sig;

	memset(info, 0x77, sizeof(*info));
	sig = until ? sigtimedwait(&set, info, until) : sigwaitinfo(&set, info);
	check(sig == SIGUSR1 && info->si_signo == SIGUSR1 && info->si_pid == getpid());
	return sizeof(*info);
}

static size_t by_sigwaitinfo(unsigned char *at)
{
	return wait_for_info(at, NULL);
}

static size_t by_sigtimedwait(unsigned char *at)
{
	return wait_for_info(at, &(struct timespec){ .tv_sec = 60 });
}

static size_t by_sem_wait(unsigned char *at)
{
	int value;

	check(sem_wait((sem_t *)(void *)at) == 0);
	check(sem_getvalue((sem_t *)(void *)at, &value) == 0 && value == 0);
	return sizeof(sem_t);
}

static size_t by_sem_timedwait(unsigned char *at)
{
	struct timespec until;
	int value;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	check(sem_timedwait((sem_t *)(void *)at, &until) == 0);
	check(sem_getvalue((sem_t *)(void *)at, &value) == 0 && value == 0);
	return sizeof(sem_t);
}

static void make_semaphore(void)
{
	check(sem_init((sem_t *)(void *)shared, 0, 0) == 0);
}

static void wake_by_semaphore(void)
{
	check(sem_post((sem_t *)(void *)shared) == 0);
}

struct condition {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int over, seen;
};

static void make_condition_with(int robust, int protocol)
{
	struct condition *c = (void *)shared;
	pthread_mutexattr_t how;

	check(pthread_mutexattr_init(&how) == 0);
	check(pthread_mutexattr_setrobust(&how, robust) == 0);
	check(pthread_mutexattr_setprotocol(&how, protocol) == 0);
	check(pthread_mutex_init(&c->lock, &how) == 0);
	check(pthread_cond_init(&c->changed, NULL) == 0);
	c->over = c->seen = 0;
}

static void make_condition(void)
{
	make_condition_with(PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
}

static void make_robust(void)
{
	make_condition_with(PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
}

static void make_inheriting(void)
{
	make_condition_with(PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
}

static size_t wait_for_change(unsigned char *at, int timed)
{
	struct condition *c = (void *)at;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	check(pthread_mutex_lock(&c->lock) == 0);
	while (!c->over)
		check((timed ? pthread_cond_timedwait(&c->changed, &c->lock, &until)
		             : pthread_cond_wait(&c->changed, &c->lock)) == 0);
	c->seen = 1;
	check(pthread_mutex_unlock(&c->lock) == 0);
	return sizeof(*c);
}

static size_t by_condition(unsigned char *at)
{
	return wait_for_change(at, 0);
}

static size_t by_timed_condition(unsigned char *at)
{
	return wait_for_change(at, 1);
}

static void wake_by_condition(void)
{
	struct condition *c = (void *)shared;

	check(pthread_mutex_lock(&c->lock) == 0);
	c->over = 1;
	check(pthread_cond_signal(&c->changed) == 0);
	check(pthread_mutex_unlock(&c->lock) == 0);
}

static const struct call calls[] = {
	{ "nanosleep", by_nanosleep, wake_by_handler },
	{ "clock_nanosleep", by_clock_nanosleep, wake_by_handler },
	{ "waitpid", by_waitpid, wake_by_end },
	{ "wait4", by_wait4, wake_by_end },
	{ "waitid", by_waitid, wake_by_end },
	{ "sigwait", by_sigwait, wake_by_signal },
	{ "sigwaitinfo", by_sigwaitinfo, wake_by_signal },
	{ "sigtimedwait", by_sigtimedwait, wake_by_signal },
	{ "sem_wait", by_sem_wait, wake_by_semaphore, make_semaphore },
	{ "sem_timedwait", by_sem_timedwait, wake_by_semaphore, make_semaphore },
	{ "pthread_cond_wait", by_condition, wake_by_condition, make_condition },
	{ "pthread_cond_timedwait", by_timed_condition, wake_by_condition, make_condition },
	{ "robust, wait", by_condition, wake_by_condition, make_robust, .home = ALL_COME },
	{ "robust, timedwait", by_timed_condition, wake_by_condition, make_robust,
	  .home = NONE_COMES },
	{ "priority, wait", by_condition, wake_by_condition, make_inheriting,
	  .home = ALL_COME },
	{ "priority, timedwait", by_timed_condition, wake_by_condition, make_inheriting,
	  .home = NONE_COMES },
};

int main(int argc, char **argv)
{
	struct sigaction a = { .sa_handler = nothing };
	sigset_t set = only_usr1();

	check(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	check(sigaction(SIGUSR2, &a, NULL) == 0);
	check(pipe(to_other) == 0);
	run_calls(calls, COUNT(calls), argc > 1 ? argv[1] : NULL);
	return 0;
}
