/* SPDX-License-Identifier: MIT */
/*
 * Threads that never rest, beside calls that a signal would end
 *
 * Two threads write all the time, others make calls that block, each for a moment, a third
 * kind blocks all signals now and then, and threads begin and end. The main thread forks.
 * Under the shim with quiet=signal the writers are stopped while memory is moved. No write
 * may be missing, no call may return EINTR or less than without signals, and the program's
 * own use of real-time signals must be as ever. MIBS, the argument, is how much must have
 * thawed before the end; 0 if there is none.
 */
#include "program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

enum { WRITERS = 2, PAGES = 1024, LARGE = 300000 };

struct stats {
	uint64_t size, members[25], bytes_thawed, rest[80];
};

static volatile int over;
static int nothing[2]; /* a pipe that stays empty */
static int epoll;
static volatile sig_atomic_t came;

static void *writes(void *memory)
{
	uint32_t n = 0, *word;

	while (!over) {
		n++;
		for (size_t page = 0; page < PAGES; page++) {
			word = (void *)((char *)memory + page * PAGE);
			check(*word == n - 1);
			*word = n;
		}
	}
	for (size_t page = 0; page < PAGES; page++)
		check(*(uint32_t *)(void *)((char *)memory + page * PAGE) == n);
	return NULL;
}

static struct timespec soon(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	t.tv_nsec += 200000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

static void polls(void)
{
	const struct timespec t = { .tv_nsec = 200000 };
	struct timeval tv = { .tv_usec = 200 };
	struct epoll_event event;
	struct pollfd p = { .fd = nothing[0], .events = POLLIN };
	fd_set set;

	check(poll(&p, 1, 1) == 0);
	check(ppoll(&p, 1, &t, NULL) == 0);
	FD_ZERO(&set);
	FD_SET(nothing[0], &set);
	check(select(nothing[0] + 1, &set, NULL, NULL, &tv) == 0);
	FD_SET(nothing[0], &set);
	check(pselect(nothing[0] + 1, &set, NULL, NULL, &t, NULL) == 0);
	check(epoll_wait(epoll, &event, 1, 1) == 0);
	check(epoll_pwait(epoll, &event, 1, 1, NULL) == 0);
}

static void sleeps(void)
{
	struct timespec t = { .tv_nsec = 200000 };

	check(nanosleep(&t, NULL) == 0);
	check(usleep(200) == 0);
	check(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL) == 0);
	t = soon(CLOCK_REALTIME);
	check(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == 0);
}

static void waits(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	struct timespec t = { .tv_nsec = 200000 };
	sigset_t set;
	sem_t sem;

	sem_init(&sem, 0, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	check(sigtimedwait(&set, NULL, &t) == -1 && errno == EAGAIN);
	t = soon(CLOCK_REALTIME);
	check(sem_timedwait(&sem, &t) == -1 && errno == ETIMEDOUT);
	t = soon(CLOCK_REALTIME);
	pthread_mutex_lock(&lock);
	check(pthread_cond_timedwait(&cond, &lock, &t) == ETIMEDOUT);
	pthread_mutex_unlock(&lock);
}

static void *calls(void *arg)
{
	while (!over) {
		polls();
		sleeps();
		waits();
	}
	return arg;
}

/* A message is longer than the socket's buffer: a signal would cut it. */
static void *sends(void *socket)
{
	static char message[LARGE];

	while (!over)
		check(write(*(int *)socket, message, LARGE) == LARGE);
	check(shutdown(*(int *)socket, SHUT_WR) == 0);
	return NULL;
}

static void *receives(void *socket)
{
	static char message[LARGE];
	struct iovec part = { message, LARGE };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	do {
		n = recv(*(int *)socket, message, LARGE, MSG_WAITALL);
		check(n == LARGE || n == 0);
		if (n)
			n = recvmsg(*(int *)socket, &m, MSG_WAITALL);
		check(n == LARGE || n == 0);
	} while (n);
	return NULL;
}

/* A long one takes milliseconds, and looks for signals meanwhile. */
static void *draws(void *arg)
{
	static char numbers[MIB];

	while (!over)
		check(getrandom(numbers, MIB, 0) == (ssize_t)MIB);
	return arg;
}

static void *queues(void *arg)
{
	int id = msgget(IPC_PRIVATE, 0600);
	struct {
		long type;
		char text[8];
	} m = { 1, "text" };
	struct timespec t = { .tv_nsec = 100000 };

	check(id >= 0);
	while (!over) {
		check(msgsnd(id, &m, sizeof(m.text), 0) == 0);
		check(msgrcv(id, &m, sizeof(m.text), 0, 0) == sizeof(m.text));
		check(nanosleep(&t, NULL) == 0);
	}
	check(msgctl(id, IPC_RMID, NULL) == 0);
	return arg;
}

/* A stop that came while all was blocked must not end the wait that opens all. */
static void *blocks(void *arg)
{
	const struct timespec t = { .tv_nsec = 100000 };
	sigset_t all, none;

	sigfillset(&all);
	sigemptyset(&none);
	while (!over) {
		struct timespec end = soon(CLOCK_MONOTONIC), now;

		check(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
		do
			clock_gettime(CLOCK_MONOTONIC, &now);
		while (now.tv_sec < end.tv_sec ||
		       (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
		check(ppoll(NULL, 0, &t, &none) == 0);
		check(pthread_sigmask(SIG_SETMASK, &none, NULL) == 0);
	}
	return arg;
}

static void *ends(void *arg)
{
	volatile uint32_t n = 0;

	while (n < 100000)
		n++;
	return arg;
}

static void *makes_threads(void *arg)
{
	pthread_t thread;

	while (!over) {
		check(pthread_create(&thread, NULL, ends, NULL) == 0);
		check(pthread_join(thread, NULL) == 0);
	}
	return arg;
}

static void reads(void *memory)
{
	volatile unsigned char *p = memory;
	unsigned sum = 0;

	for (size_t page = 0; page < PAGES; page++)
		sum += p[page * PAGE];
	*p = (unsigned char)sum;
}

static void dies(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

/* The signals are as the program knows them. `own`: it takes them all, too. */
static void on_signal(int sig)
{
	(void)sig;
	came++;
}

static void uses_signals(bool own)
{
	struct sigaction a = { .sa_handler = on_signal }, was;
	int status, count = came;
	pid_t child;

	for (int sig = SIGRTMAX; sig >= SIGRTMIN; sig--) {
		check(sigaction(sig, NULL, &was) == 0 && was.sa_handler == SIG_DFL);
		check(signal(sig, SIG_IGN) == SIG_DFL);
		check(raise(sig) == 0);
		check(signal(sig, SIG_DFL) == SIG_IGN);
		if (!own)
			continue;
		check(sigaction(sig, &a, &was) == 0 && was.sa_handler == SIG_DFL);
		check(raise(sig) == 0 && came == ++count);
		check(sigaction(sig, NULL, &was) == 0 &&
		      was.sa_handler == on_signal);
		check(signal(sig, SIG_DFL) == on_signal);
	}
	child = start(dies, NULL);
	check(kill(child, SIGRTMAX) == 0);
	check(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	      WTERMSIG(status) == SIGRTMAX);
}

static uint64_t thawed(void)
{
	int (*get_stats)(struct stats *);
	struct stats s = { .size = sizeof(s) };
	void *p = dlsym(RTLD_DEFAULT, "cow_stats_get");

	if (!p)
		return UINT64_MAX;
	memcpy(&get_stats, &p, sizeof(p));
	check(get_stats(&s) == 0);
	return s.bytes_thawed;
}

int main(int argc, char **argv)
{
	void *(*const work[])(void *) = { calls, calls, queues, blocks, makes_threads, draws };
	uint64_t wanted = argc > 1 ? (uint64_t)atoi(argv[1]) * MIB : 0;
	time_t end = time(NULL) + 200;
	pthread_t threads[WRITERS + COUNT(work) + 2];
	unsigned char *memory[WRITERS];
	int n = 0, pair[2];

	uses_signals(false);
	gate_make(nothing);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	for (size_t i = 0; i < WRITERS; i++) {
		memory[i] = get_pages(PAGES * PAGE);
		memset(memory[i], 0, PAGES * PAGE);
		check(pthread_create(&threads[n++], NULL, writes, memory[i]) == 0);
	}
	check(pthread_create(&threads[n++], NULL, sends, &pair[0]) == 0);
	check(pthread_create(&threads[n++], NULL, receives, &pair[1]) == 0);
	for (size_t i = 0; i < COUNT(work); i++)
		check(pthread_create(&threads[n++], NULL, work[i], NULL) == 0);
	for (int round = 0; round < 20 || thawed() < wanted; round++) {
		check(time(NULL) < end);
		finish(start(reads, memory[round % WRITERS]));
		check(usleep(20000) == 0);
	}
	uses_signals(true);
	for (int round = 0; round < 5; round++)
		finish(start(reads, memory[round % WRITERS]));
	over = 1;
	while (n > 0)
		check(pthread_join(threads[--n], NULL) == 0);
	puts("stops: done");
	return 0;
}
