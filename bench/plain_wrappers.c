/* SPDX-License-Identifier: MIT */
/*
 * The cost of calls that a preloaded library wraps
 *
 *      plain_wrappers [-t]
 *
 * Each call below may block, but does not here: there is something to take, it must not
 * wait, or the kernel refuses its arguments (accept, the sleeps: else they take far
 * longer). Under a preloaded library the name of a call finds that library's function,
 * and the C library's own is still there. Both run in turns, in batches of a thousand.
 * The cost of a wrapper is the median difference between two neighbouring batches. So it
 * is known to a nanosecond, beside calls of hundreds. -t keeps a second thread, which
 * sleeps: the C library's own calls take longer then. One line a call:
 *
 *      call=.. wrapped=0|1 with_ns=.. own_ns=.. extra_ns=..
 *
 * wrapped=0: both are the same function, and extra_ns shows what the clock can tell.
 */
#include "bench/common.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { BATCH = 1000, ROUNDS = 255 };
typedef void any_fn(void);

static int zero_fd, event_fd, poll_fd, pair_fd[2];
static sem_t semaphore, never;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static const struct timespec past, wrong = { 0, -1 };
static sigset_t no_signal;
static uint32_t word = 1;

/* One loop a call: `n` times the function `f`, which is the named one. */
#define LOOP(name, type, call)                                       \
	static void name(any_fn *any, long n)                        \
	{                                                            \
		type *f = (type *)any;                               \
		char bytes[8];                                       \
		struct timeval none = { 0, 0 };                      \
		struct epoll_event event;                            \
		struct pollfd fd = { event_fd, POLLIN, 0 };          \
                                                                     \
		(void)bytes, (void)none, (void)event, (void)fd;      \
		while (n--)                                          \
			call;                                        \
	}

LOOP(loop_zero, __typeof__(read), f(zero_fd, bytes, 1))
LOOP(loop_event, __typeof__(read), f(event_fd, bytes, 8))
LOOP(loop_poll, __typeof__(poll), f(&fd, 1, 0))
LOOP(loop_select, __typeof__(select), f(0, NULL, NULL, NULL, &none))
LOOP(loop_epoll, __typeof__(epoll_wait), f(poll_fd, &event, 1, 0))
LOOP(loop_recv, __typeof__(recv), f(pair_fd[0], bytes, 1, MSG_DONTWAIT))
LOOP(loop_accept, __typeof__(accept), f(event_fd, NULL, NULL))
LOOP(loop_sem, __typeof__(sem_wait), (sem_post(&semaphore), f(&semaphore)))
LOOP(loop_cond, __typeof__(pthread_cond_timedwait), f(&condition, &mutex, &wrong))
LOOP(loop_sleep, __typeof__(nanosleep), f(&wrong, NULL))
LOOP(loop_until, __typeof__(clock_nanosleep),
     f(CLOCK_MONOTONIC, TIMER_ABSTIME, &wrong, NULL))
LOOP(loop_signal, __typeof__(sigtimedwait), f(&no_signal, NULL, &past))
LOOP(loop_futex, __typeof__(syscall),
     f(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0))

static const struct call {
	const char *name, *symbol;
	void (*loop)(any_fn *, long);
} calls[] = {
	{ "read-zero", "read", loop_zero },
	{ "read-eventfd", "read", loop_event },
	{ "poll", "poll", loop_poll },
	{ "select", "select", loop_select },
	{ "epoll_wait", "epoll_wait", loop_epoll },
	{ "recv", "recv", loop_recv },
	{ "accept", "accept", loop_accept },
	{ "sem_wait", "sem_wait", loop_sem },
	{ "cond_timedwait", "pthread_cond_timedwait", loop_cond },
	{ "nanosleep", "nanosleep", loop_sleep },
	{ "clock_nanosleep", "clock_nanosleep", loop_until },
	{ "sigtimedwait", "sigtimedwait", loop_signal },
	{ "futex", "syscall", loop_futex },
};

static void prepare(void)
{
	zero_fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	poll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (zero_fd < 0 || event_fd < 0 || poll_fd < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair_fd) ||
	    sem_init(&semaphore, 0, 0) || sem_init(&never, 0, 0))
		die("descriptors: %s", strerror(errno));
	sigemptyset(&no_signal);
	pthread_mutex_lock(&mutex);
}

static void *idle(void *unused)
{
	while (sem_wait(&never))
		;
	return unused;
}

static double batch(const struct call *c, any_fn *f)
{
	double t0 = now_ns();

	c->loop(f, BATCH);
	return (now_ns() - t0) / BATCH;
}

static void measure(const struct call *c, void *libc)
{
	any_fn *outer = (any_fn *)dlsym(RTLD_DEFAULT, c->symbol);
	any_fn *inner = (any_fn *)dlsym(libc, c->symbol);
	struct series with = { .n = 0 }, own = { .n = 0 }, extra = { .n = 0 };

	if (!outer || !inner)
		die("%s: %s", c->symbol, dlerror());
	for (int i = 0; i < ROUNDS; i++) {
		double a, b;

		if (i % 2) {
			a = batch(c, outer);
			b = batch(c, inner);
		} else {
			b = batch(c, inner);
			a = batch(c, outer);
		}
		series_add(&with, a);
		series_add(&own, b);
		series_add(&extra, a - b);
	}
	printf("call=%s wrapped=%d with_ns=%.2f own_ns=%.2f extra_ns=%.2f\n",
	       c->name, outer != inner, series_median(&with),
	       series_median(&own), series_median(&extra));
}

int main(int argc, char **argv)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	pthread_t thread;
	bool threads = false;

	OPTIONS({ 't', .flag = &threads });
	if (!libc)
		die("no libc.so.6 in this process: %s", dlerror());
	prepare();
	if (threads && pthread_create(&thread, NULL, idle, NULL))
		die("no thread");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		measure(&calls[i], libc);
	return 0;
}
