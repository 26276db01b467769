/* SPDX-License-Identifier: MIT */
/*
 * Threads that wait in each blocking call of libc
 *
 * While they wait, an allocator may move the pages of a block that was written after a
 * fork, and give the memory of the moment of the fork back. It must do so beside each of
 * these calls: a server rests in them all its life. Under the shim the program asks the
 * library how much it thawed. Without it, the program only waits and looks at its bytes.
 */
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <linux/futex.h>

#define BYTES (16 * MIB)

struct stats {
	uint64_t size, members[25], bytes_thawed, rest[80];
};

static int quiet[2];    /* a pipe that stays empty until the wait is to end */
static int waits;       /* the thread is about to wait */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int word, over;

static struct timespec in_a_minute(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 60;
	return t;
}

static void by_read(void)
{
	char byte;

	check(read(quiet[0], &byte, 1) == 1);
}

static void by_poll(void)
{
	struct pollfd p = { .fd = quiet[0], .events = POLLIN };

	check(poll(&p, 1, 60000) == 1);
	by_read();
}

static void by_select(void)
{
	struct timeval minute = { 60, 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(quiet[0], &set);
	check(select(quiet[0] + 1, &set, NULL, NULL, &minute) == 1);
	by_read();
}

static void by_epoll(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd = epoll_create1(EPOLL_CLOEXEC);

	check(epoll_ctl(fd, EPOLL_CTL_ADD, quiet[0], &event) == 0);
	check(epoll_wait(fd, &event, 1, 60000) == 1);
	close(fd);
	by_read();
}

static void by_condition(void)
{
	struct timespec until = in_a_minute();

	pthread_mutex_lock(&lock);
	while (!over)
		check(pthread_cond_timedwait(&cond, &lock, &until) == 0);
	pthread_mutex_unlock(&lock);
	by_read();
}

static void by_semaphore(void)
{
	struct timespec until = in_a_minute();

	check(sem_timedwait(&sem, &until) == 0);
	by_read();
}

static void by_futex(void)
{
	struct timespec minute = { .tv_sec = 60 };

	while (!__atomic_load_n(&word, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, &word, FUTEX_WAIT, 0, &minute, NULL, 0);
	by_read();
}

static void by_signal(void)
{
	siginfo_t info;
	struct timespec minute = { .tv_sec = 60 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	check(sigtimedwait(&set, &info, &minute) == SIGUSR1);
	by_read();
}

static void *nothing(void *arg)
{
	by_read();
	return arg;
}

static void by_join(void)
{
	pthread_t thread;

	check(pthread_create(&thread, NULL, nothing, NULL) == 0);
	check(pthread_join(thread, NULL) == 0);
}

static const struct {
	const char *name;
	void (*wait)(void);
} ways[] = {
	{ "read", by_read },
	{ "poll", by_poll },
	{ "select", by_select },
	{ "epoll_wait", by_epoll },
	{ "pthread_cond_timedwait", by_condition },
	{ "sem_timedwait", by_semaphore },
	{ "futex", by_futex },
	{ "sigtimedwait", by_signal },
	{ "pthread_join", by_join },
};

static void *waiter(void *arg)
{
	__atomic_store_n(&waits, 1, __ATOMIC_RELEASE);
	ways[(uintptr_t)arg].wait();
	return NULL;
}

/* Then blocks are anonymous memory, and nothing is frozen (option backing). */
static int memory_is_counted(void)
{
	char mode = 0;
	int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		check(read(fd, &mode, 1) == 1);
		close(fd);
	}
	return mode == '2';
}

static uint64_t thawed(void)
{
	static int (*get_stats)(struct stats *);
	struct stats s = { .size = sizeof(s) };
	void *p = dlsym(RTLD_DEFAULT, "cow_stats_get");

	if (!p || memory_is_counted())
		return UINT64_MAX;
	memcpy(&get_stats, &p, sizeof(p));
	check(get_stats(&s) == 0);
	return s.bytes_thawed;
}

static void rest(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

static int gate[2];

static void reads(void *arg)
{
	gate_wait(gate);
	check(holds(arg, BYTES, 1));
}

/* Beside a thread that waits: fork, rewrite while the child lives, rest. */
static void heals(size_t way)
{
	unsigned char *block = get_filled(BYTES, 1);
	pthread_t thread;
	uint64_t before;
	int looks = 0;
	pid_t child;

	waits = over = word = 0;
	check(pthread_create(&thread, NULL, waiter, (void *)way) == 0);
	while (!__atomic_load_n(&waits, __ATOMIC_ACQUIRE))
		rest();
	gate_make(gate);
	before = thawed();
	child = start(reads, block);
	fill(block, BYTES / 2, 2);
	gate_open(gate);
	finish(child);
	while (thawed() - before < BYTES && before != UINT64_MAX) {
		check(looks++ < 5000);
		rest();
	}
	check(holds(block, BYTES / 2, 2));
	pthread_mutex_lock(&lock);
	over = 1;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&lock);
	sem_post(&sem);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
	pthread_kill(thread, SIGUSR1);
	gate_open(quiet);
	check(pthread_join(thread, NULL) == 0);
	while (sem_trywait(&sem) == 0)
		;
	close(gate[0]);
	close(gate[1]);
	free(block);
	printf("%s\n", ways[way].name);
}

int main(void)
{
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	check(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	gate_make(quiet);
	sem_init(&sem, 0, 0);
	for (i = 0; i < COUNT(ways); i++)
		heals(i);
	return 0;
}
