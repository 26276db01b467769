/* SPDX-License-Identifier: MIT */
/*
 * Threads that park and wake at every moment, while memory is moved
 *
 * Each thread owns a part of a block, with a counter at the start of each page. It waits in
 * a random blocking call, often into a buffer in its part, then writes some counters and
 * notes them elsewhere. Signals come all the time: their handler counts in the block, and
 * sometimes leaves by siglongjmp(). The main thread forks: children read all, write all, or
 * are killed; one in four makes a child by vfork() that is killed in a call. At the end no
 * write may be missing. SECONDS is the argument, 2 if there is none. A second argument is
 * how many threads write all the time beside the others, at most THREADS, or the error with
 * which a filter answers membarrier(), "ENOSYS" or "EPERM".
 */
#include "deny.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/select.h>
#include <time.h>

enum { THREADS = 4, PAGES = 1024, LONGEST_US = 300 };

static struct part {
	unsigned char *memory;       /* of PAGES pages */
	uint32_t counts[PAGES];      /* what the counters must be */
	pthread_t thread;
	uint64_t random;
	int to[2];                   /* a pipe from the feeder */
	uint64_t received;
	volatile sig_atomic_t may_jump;
	sigjmp_buf jump;
	uint32_t signals;            /* what the handler must have counted */
} parts[THREADS];

static volatile int over;
static _Thread_local struct part *mine;

static uint32_t *counter(const struct part *p, size_t page)
{
	return (uint32_t *)(void *)(p->memory + page * PAGE);
}

/* The handler's own counter lies beside the one of page 0. */
static void on_signal(int number)
{
	int saved = errno;

	(void)number;
	if (!mine)
		return;
	counter(mine, 0)[1]++;
	mine->signals++;
	errno = saved;
	if (mine->may_jump && mine->signals % 3 == 0) {
		mine->may_jump = 0;
		siglongjmp(mine->jump, 1);
	}
}

static struct timespec in_us(clockid_t clock, long us)
{
	struct timespec t;

	clock_gettime(clock, &t);
	t.tv_nsec += us * 1000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* Reads into the part itself: the kernel writes it while the thread waits. */
static void wait_for_bytes(struct part *p)
{
	unsigned char *to = p->memory + (1 + below(&p->random, PAGES - 1)) * PAGE + 64;
	uint64_t got;

	while (read(p->to[0], to, sizeof(got)) < 0)
		check(errno == EINTR);
	memcpy(&got, to, sizeof(got));
	check(got == p->received++);
}

/* Sends each part a number more, at random times. It is a process of its own: its bytes
 * arrive whatever the threads do. */
static void feeds(void *arg)
{
	uint64_t random = 7, sent[THREADS] = { 0 };

	(void)arg;
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;;) {
		size_t i = below(&random, THREADS);

		check(write(parts[i].to[1], &sent[i], sizeof(sent[i])) ==
		      sizeof(sent[i]));
		sent[i]++;
		usleep((useconds_t)below(&random, 50));
	}
}

static void wait_with_lock(long us)
{
	struct timespec until = in_us(CLOCK_REALTIME, us);
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

	pthread_mutex_lock(&lock);
	(void)pthread_cond_timedwait(&cond, &lock, &until);
	pthread_mutex_unlock(&lock);
}

static void wait_somehow(struct part *p)
{
	long us = (long)below(&p->random, LONGEST_US);
	struct timespec t = { .tv_nsec = us * 1000 };
	struct timeval tv = { .tv_usec = us };
	struct pollfd fd = { .fd = -1 };
	sigset_t none;

	sigemptyset(&none);
	switch (below(&p->random, 7)) {
	case 0:
		nanosleep(&t, NULL);
		break;
	case 1:
		ppoll(&fd, 1, &t, NULL);
		break;
	case 2:
		select(0, NULL, NULL, NULL, &tv);
		break;
	case 3:
		wait_with_lock(us);
		break;
	case 4:
		sigtimedwait(&none, NULL, &t);
		break;
	default:
		wait_for_bytes(p);
	}
}

static void *works(void *arg)
{
	struct part *p = arg;
	sigset_t set;

	mine = p;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	while (!over) {
		size_t n = below(&p->random, 20);

		/* A jump may leave a sleep, but no lock and no half of a message. */
		if (sigsetjmp(p->jump, 1) == 0) {
			p->may_jump = 1;
			usleep((useconds_t)below(&p->random, 100));
			p->may_jump = 0;
		}
		wait_somehow(p);
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		while (n--) {
			size_t page = below(&p->random, PAGES);

			check(*counter(p, page) == p->counts[page]);
			*counter(p, page) = ++p->counts[page];
		}
		check(counter(p, 0)[1] == p->signals);
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	}
	return NULL;
}

/* Never parks. */
static void *writes_all_the_time(void *memory)
{
	uint32_t n = 0;

	while (!over) {
		n++;
		for (size_t k = 0; k < PAGES; k++) {
			uint32_t *word = (void *)((unsigned char *)memory + k * PAGE);

			check((*word)++ == n - 1);
		}
	}
	return NULL;
}

static void begin_busy(pthread_t *thread)
{
	void *memory = get_pages(PAGES * PAGE);

	memset(memory, 0, PAGES * PAGE);
	check(pthread_create(thread, NULL, writes_all_the_time, memory) == 0);
}

static void reads_all(void *arg)
{
	uint64_t sum = 0;

	(void)arg;
	for (int i = 0; i < THREADS; i++)
		for (size_t k = 0; k < PAGES; k++)
			sum += *counter(&parts[i], k);
	*counter(&parts[0], 0) = (uint32_t)sum;
}

static void writes_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < THREADS; i++)
		memset(parts[i].memory, 255, PAGES * PAGE);
}

static void waits(void *arg)
{
	(void)arg;
	sleep(60);
}

static void killed(void)
{
	pid_t child = start(waits, NULL);
	int status;

	usleep(200);
	check(kill(child, SIGKILL) == 0);
	check(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

/* The child uses this memory, and is killed in a call. */
__attribute__((noinline)) static void killed_in_vfork(int idle)
{
	pid_t child = vfork();
	char byte;
	int status;

	if (child == 0) {
		alarm(1);
		(void)!read(idle, &byte, 1);
		_exit(1);
	}
	check(child > 0);
	check(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

static void begin(struct sigaction *a, int i)
{
	struct part *p = &parts[i];

	p->memory = get_pages(PAGES * PAGE);
	memset(p->memory, 0, PAGES * PAGE);
	p->random = (uint64_t)i + 1;
	check(sigaction(SIGUSR1, a, NULL) == 0);
	check(pthread_create(&p->thread, NULL, works, p) == 0);
}

/* A library may have asked for it before main(). */
static void deny_membarrier(const char *error)
{
	const int call = SYS_membarrier;

	deny_calls(&call, 1, strcmp(error, "EPERM") == 0 ? EPERM : ENOSYS);
	check(syscall(SYS_membarrier, 0, 0, 0) == -1);
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 2);
	struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	uint64_t random = 99, round;
	int i, idle[2], status, nbusy = argc > 2 ? atoi(argv[2]) : 0;
	pthread_t busy[THREADS];
	pid_t feeder;

	if (argc > 2 && argv[2][0] == 'E')
		deny_membarrier(argv[2]);
	gate_make(idle);
	for (i = 0; i < THREADS; i++)
		gate_make(parts[i].to);
	feeder = start(feeds, NULL);
	for (i = 0; i < THREADS; i++)
		begin(&a, i);
	check(nbusy <= THREADS);
	for (i = 0; i < nbusy; i++)
		begin_busy(&busy[i]);
	for (round = 0; time(NULL) < end; round++) {
		switch (below(&random, 4)) {
		case 0:
			in_child(writes_all, NULL);
			break;
		case 1:
			killed();
			break;
		default:
			in_child(reads_all, NULL);
		}
		if (round == 10)
			killed_in_vfork(idle[0]);
		for (i = 0; i < 5; i++) {
			pthread_kill(parts[below(&random, THREADS)].thread, SIGUSR1);
			usleep((useconds_t)below(&random, 500));
		}
	}
	over = 1;
	for (i = 0; i < THREADS; i++)
		check(pthread_join(parts[i].thread, NULL) == 0);
	for (i = 0; i < nbusy; i++)
		check(pthread_join(busy[i], NULL) == 0);
	check(kill(feeder, SIGKILL) == 0 && waitpid(feeder, &status, 0) == feeder);
	for (i = 0; i < THREADS; i++)
		for (size_t k = 0; k < PAGES; k++)
			check(*counter(&parts[i], k) == parts[i].counts[k]);
	puts("no write is missing");
	return 0;
}
