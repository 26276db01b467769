/* SPDX-License-Identifier: MIT */
/*
 * The bytes of one moment: see the header.
 *
 * Where the process may not read the child's memory, the two take turns by one word: the process
 * asks, the child answers. tests/model/moment.pml checks this with a child that may be killed at any
 * step.
 */
#include "memfd/moment.h"
#include "memfd/gate.h"
#include "memfd/sys.h"
#include "memfd/thread.h"

#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define STACK ((size_t)32 << 10)
#define BUFFER ((size_t)256 << 10) /* stays in the caches */
#define LOOK_NS 100000000
#define LOOKS 50   /* so many without a sign of life: some seconds, for a busy machine */
#define AT_ONCE 64 /* runs in one question */

enum turn {
	IDLE, /* the child has answered, or nobody has asked */
	ASKED,
	OVER, /* the child is to end */
};

struct cow__moment_desk {
	uint32_t turn; /* futex */
	int32_t parent;
	uint32_t beat; /* the process raises it while it reads */
	uint32_t n;
	struct cow__run runs[AT_ONCE]; /* the question: no more bytes than the buffer has */
	char stack[STACK] __attribute__((aligned(64)));
	char buffer[BUFFER] __attribute__((aligned(4096)));
};

static struct cow__moment_desk *of_child; /* the child takes its own copy of this word along */

/* Both may sleep for the other. It may return early. */
static void
sleep_while(struct cow__moment_desk *d, uint32_t turn)
{
	const struct timespec limit = { .tv_nsec = LOOK_NS };

	(void)cow__syscall(SYS_futex, (long)&d->turn, FUTEX_WAIT, (long)turn, (long)&limit, 0, 0);
}

static void
give_turn(struct cow__moment_desk *d, uint32_t turn)
{
	__atomic_store_n(&d->turn, turn, __ATOMIC_RELEASE);
	(void)cow__syscall(SYS_futex, (long)&d->turn, FUTEX_WAKE, 1, 0, 0, 0);
}

static void
answer(struct cow__moment_desk *d)
{
	char *to = d->buffer;

	for (uint32_t i = 0; i < d->n; i++) {
		memcpy(to, (const void *)d->runs[i].start, d->runs[i].end - d->runs[i].start);
		to += d->runs[i].end - d->runs[i].start;
	}
}

/* Is the caller still there? The process may have been killed, or have executed a program: that has
 * the same number, but raises nothing. */
static bool
is_wanted(struct cow__moment_desk *d, uint32_t *beat, int *looks)
{
	uint32_t now = __atomic_load_n(&d->beat, __ATOMIC_RELAXED);

	*looks = now == *beat ? *looks + 1 : 0;
	*beat = now;
	return *looks < LOOKS && cow__syscall(SYS_getppid, 0, 0, 0, 0, 0, 0) == d->parent;
}

/* Only calls of the kernel, directly: what the library knows of locks and threads is the parent's. A
 * filter may end the child for one of them. */
static void
child_main(void)
{
	struct cow__moment_desk *d = of_child;
	uint32_t turn, beat = 0;
	int looks = 0;

	while ((turn = __atomic_load_n(&d->turn, __ATOMIC_ACQUIRE)) != OVER &&
	       is_wanted(d, &beat, &looks))
		if (turn == ASKED) {
			answer(d);
			give_turn(d, IDLE);
		} else {
			sleep_while(d, IDLE);
		}
}

/* After unshare(CLONE_NEWPID) the next child would be the first process of a namespace, which ends
 * with it. Until there is one, the kernel does not show that namespace. */
static bool
is_in_our_namespace(void)
{
	struct stat ours, childs;

	return sys_fstatat(AT_FDCWD, "/proc/self/ns/pid", &ours, 0) == 0 &&
	       sys_fstatat(AT_FDCWD, "/proc/self/ns/pid_for_children", &childs, 0) == 0 &&
	       ours.st_ino == childs.st_ino;
}

int
cow__moment_begin(struct cow__moment *ret)
{
	long at;

#if defined(COW_SANITIZED)
	return -EAGAIN; /* their runtimes can't handle such a child */
#endif
	if (!is_in_our_namespace() || (cow__gate_state && !cow__gate_lets(SYS_clone, COW__FORKS, 0, 0, 0)))
		return -EAGAIN;
	at = sys_mmap(NULL, sizeof(*ret->desk), PROT_READ | PROT_WRITE,
	              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at < 0)
		return (int)at;
	*ret = (struct cow__moment){ .desk = (struct cow__moment_desk *)at };
	of_child = ret->desk;
	ret->desk->parent = (int32_t)cow__syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
	/* Not CLONE_FS: while another process has its directories, the kernel refuses setns(), and lets
	 * no program gain rights by exec. */
	ret->pid = cow__thread_clone(CLONE_FILES, ret->desk->stack + STACK - 64, child_main);
	if (ret->pid > 0)
		return 0;
	(void)sys_munmap(ret->desk, sizeof(*ret->desk));
	return ret->pid == -ENOMEM ? -ENOMEM : -EAGAIN;
}

/* Waits for the answer. False: the child has ended. */
static bool
is_answered(struct cow__moment *m)
{
	long r;

	for (int i = 0; __atomic_load_n(&m->desk->turn, __ATOMIC_ACQUIRE) == ASKED; i++) {
		sleep_while(m->desk, ASKED);
		if (__atomic_load_n(&m->desk->turn, __ATOMIC_ACQUIRE) != ASKED)
			break;
		r = cow__syscall(SYS_wait4, m->pid, 0, __WALL | WNOHANG, 0, 0, 0);
		if (r == m->pid || r == -ECHILD)
			m->pid = 0;
		if (r != 0 || i == LOOKS) /* or that can't be known, or somebody stopped it */
			return false;
	}
	return true;
}

/* Takes some of the runs, no more than the buffer holds. *at bytes of the first one are done. Returns
 * how many, and leaves the rest in *runs, *n and *at. */
static uint32_t
take(const struct cow__run **runs, uint32_t *n, size_t *at, struct cow__run *ret, size_t *ret_bytes)
{
	size_t most = BUFFER;
	uint32_t count = 0;

	while (*n && most && count < AT_ONCE) {
		struct cow__run r = { (*runs)->start + *at, (*runs)->end };
		size_t bytes = r.end - r.start;

		if (bytes > most) {
			bytes = most;
			r.end = r.start + bytes;
			*at += bytes;
		} else {
			*at = 0;
			++*runs;
			--*n;
		}
		most -= bytes;
		ret[count++] = r;
	}
	*ret_bytes = BUFFER - most;
	return count;
}

/* False: the kernel forbids it. */
static bool
read_directly(struct cow__moment *m, const struct cow__run *runs, uint32_t n, char *to,
              uintptr_t delta, long *ret)
{
	struct iovec here[AT_ONCE], there[AT_ONCE];

	for (uint32_t i = 0; i < n; i++) {
		size_t bytes = runs[i].end - runs[i].start;

		there[i] = (struct iovec){ (void *)runs[i].start, bytes };
		here[i] = (struct iovec){ to ? to : (char *)(runs[i].start + delta), bytes };
		to += to ? bytes : 0;
	}
	*ret = SYS6(SYS_process_vm_readv, m->pid, here, n, there, n, 0);
	return *ret != -EPERM && *ret != -ENOSYS;
}

/* False: the child has ended. */
static bool
ask(struct cow__moment *m, const struct cow__run *runs, uint32_t n, char *to, uintptr_t delta)
{
	const char *from = m->desk->buffer;

	memcpy(m->desk->runs, runs, n * sizeof(*runs));
	m->desk->n = n;
	give_turn(m->desk, ASKED);
	if (!is_answered(m))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		size_t bytes = runs[i].end - runs[i].start;

		memcpy(to ? to : (char *)(runs[i].start + delta), from, bytes);
		from += bytes;
		to += to ? bytes : 0;
	}
	return true;
}

int
cow__moment_read(struct cow__moment *m, const struct cow__run *runs, uint32_t n, char *to,
                 uintptr_t delta)
{
	struct cow__run some[AT_ONCE];
	size_t at = 0, bytes;
	uint32_t count;
	long r;

	while (n) {
		__atomic_fetch_add(&m->desk->beat, 1, __ATOMIC_RELAXED);
		count = take(&runs, &n, &at, some, &bytes);
		if (!m->pid)
			return -EAGAIN;
		m->asks = m->asks || !read_directly(m, some, count, to, delta, &r);
		if (m->asks)
			r = ask(m, some, count, to, delta) ? (long)bytes : -EAGAIN;
		if (r != (long)bytes)
			return -EAGAIN;
		to += to ? bytes : 0;
	}
	return 0;
}

/* Another thread may have waited for the child, and its number may be another process's by now. So
 * what was read counts only if the child is still there, and ours. */
int
cow__moment_end(struct cow__moment *m)
{
	long r = m->pid ? cow__syscall(SYS_wait4, m->pid, 0, __WALL | WNOHANG, 0, 0, 0) : -ECHILD;

	if (r == m->pid || r == -ECHILD)
		m->pid = 0;
	if (m->pid) {
		give_turn(m->desk, OVER);
		/* One that somebody stopped would not end. */
		(void)cow__syscall(SYS_kill, m->pid, SIGKILL, 0, 0, 0, 0);
	}
	return r == 0 ? 0 : -EAGAIN;
}

bool
cow__moment_reap(struct cow__moment *m, bool wait)
{
	if (m->desk && m->desk->parent != (int32_t)cow__syscall(SYS_getpid, 0, 0, 0, 0, 0, 0))
		m->pid = 0; /* a fork took it along */
	if (m->pid && cow__syscall(SYS_wait4, m->pid, 0, __WALL | (wait ? 0 : WNOHANG), 0, 0, 0) == 0)
		return false;
	if (m->desk)
		(void)sys_munmap(m->desk, sizeof(*m->desk));
	*m = (struct cow__moment){ .pid = 0 };
	return true;
}
