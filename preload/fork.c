/* SPDX-License-Identifier: MIT */
/*
 * Fork
 *
 * Handlers (pthread_atfork) do the work, also for daemon() and forkpty(): the
 * engine's own, and those of this file. The shim also interposes these names:
 *
 *   fork    fails with ENOMEM if the child could not get its memory
 *   _Fork   runs no handlers, so they are called here
 *   clone   runs none either, and may make a child with its own memory; so may
 *           calls by number (preload/raw.c)
 *   wait..  here the parent learns that a child has gone, and memory may thaw
 *           (docs/design/fork.md)
 */
#include "preload/next.h"
#include "preload/park.h"
#include "preload/preload.h"

#include "core/fork/border.h"
#include "core/fork/fork.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* The function of that name behind ours, looked up at the first call. */
#define NEXT(type, name)                                                       \
	static type next;                                                      \
	type f = __atomic_load_n(&next, __ATOMIC_RELAXED);                     \
	if (!f) {                                                              \
		void *p = preload_next_symbol(name);                           \
		memcpy(&f, &p, sizeof(p));                                     \
		__atomic_store_n(&next, f, __ATOMIC_RELAXED);                  \
	}

typedef pid_t fork_fn(void);

/*
 * glibc's fork takes the lock of the list of streams, then the locks of malloc. It
 * must be that order: a thread that flushes all streams has the list and waits for a
 * stream, and the thread that has this stream may wait for memory. Here malloc is the
 * engine, which a fork handler locks before glibc takes the list. So prepare_fork() takes
 * the list before the engine is locked. In the child the list is free. musl has no
 * such names.
 */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak));
static unsigned have_list COW_FORK_DATA; /* a count: a handler may fork within a fork */

static void
streams_lock(void)
{
	if (!_IO_list_lock || (&__libc_single_threaded && __libc_single_threaded))
		return;
	_IO_list_lock();
	have_list++;
}

static void
streams_unlock(void)
{
	if (!have_list)
		return;
	have_list--;
	_IO_list_unlock();
}

/* The list comes first: to wait for a stream may take long. */
static void
prepare_fork(void)
{
	streams_lock();
	preload_signals_prepare();
}

static void
in_parent(void)
{
	streams_unlock();
	preload_signals_parent();
}

/* Of a child whose program calls the handlers itself, around its own clone(). */
static struct {
	long flags;
	void *number;
} by_hand COW_FORK_DATA;

COW_FORK_CODE static void
in_child(void)
{
	preload_signals_child();
	if (have_list)
		_IO_list_resetlock();
	have_list = 0;
	if (preload_sandboxed()) /* the kernel did it all, and a filter may end the child */
		return;
	preload_report_begin();
	preload_park_child();
	preload_gate_child();
	preload_border_born(by_hand.flags);
	if (by_hand.number)
		preload_child_number(by_hand.number);
	by_hand.flags = 0;
	by_hand.number = NULL;
}

void
preload_fork_init(void)
{
	(void)pthread_atfork(prepare_fork, in_parent, in_child);
}

COW_FORK_CODE static pid_t
forked(pid_t pid)
{
	int error;

	if (pid <= 0)
		return pid;
	error = cow__fork_result();
	if (error < 0) {
		/* The child saw the error, too, and ended. */
		while (cow__syscall(SYS_wait4, pid, 0, __WALL, 0, 0, 0) == -EINTR)
			;
		errno = -error;
		return -1;
	}
	return pid;
}

EXPORT pid_t
fork(void)
{
	NEXT(fork_fn *, "fork")
	return forked(f());
}

enum preload_fork
preload_fork_begin(void)
{
	if (cow__fork_is_mine())
		return PRELOAD_FORK_BY_HAND;
	return cow__fork_try_prepare() ? PRELOAD_FORK_PREPARED : PRELOAD_FORK_MISSED;
}

void
preload_fork_alone(enum preload_fork how, long flags, void *number)
{
	if (how == PRELOAD_FORK_MISSED) {
		cow__border_missed();
		return;
	}
	by_hand.flags = flags;
	by_hand.number = number;
}

pid_t
preload_fork_end(pid_t pid)
{
	if (pid == 0) {
		cow__fork_child();
		in_child();
	} else {
		cow__fork_parent();
	}
	return forked(pid);
}

EXPORT pid_t
_Fork(void)
{
	enum preload_fork how;
	pid_t pid;

	NEXT(fork_fn *, "_Fork")
	if (!f) {
		errno = ENOSYS;
		return -1;
	}
	how = preload_fork_begin();
	pid = f();
	if (how == PRELOAD_FORK_PREPARED)
		return preload_fork_end(pid);
	if (pid == 0)
		preload_fork_alone(how, 0, NULL);
	return pid;
}

/* The kernel wrote the number into what the child inherited. After that the child got its
 * copy of a block, or a block was wiped. The program may also have protected the place:
 * then the kernel wrote nothing, and its answer to adding 0 there is the same. */
void
preload_child_number(void *at)
{
	if (preload_ours(at) && !preload_sandboxed() &&
	    cow__syscall(SYS_futex, (long)at, FUTEX_WAKE_OP_PRIVATE, 0, 0, (long)at,
	                 FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)) >= 0)
		*(pid_t *)at = (pid_t)cow__syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

struct beginning {
	int (*fn)(void *);
	void *arg, *number; /* NULL: its number is not wanted */
	long flags;
	enum preload_fork how;
};

/* Runs on the child's stack. */
static int
run_child(void *arg)
{
	struct beginning b = *(struct beginning *)arg;
	int status;

	preload_border_early(b.flags);
	if (b.how != PRELOAD_FORK_PREPARED) {
		preload_fork_alone(b.how, b.flags, b.number);
		return b.fn(b.arg);
	}
	(void)preload_fork_end(0);
	preload_border_born(b.flags);
	preload_child_number(b.number);
	status = b.fn(b.arg);
	/* Now libc ends this thread alone. The helper would keep the process. */
	(void)cow__threads_suspend();
	return status;
}

/* A child that is no thread, but uses this memory. With CLONE_VFORK it also uses this
 * thread's record, and this thread waits until it is gone. A thread without
 * thread-local data of its own uses this thread's record, too, while both run. */
static void
note_sharing(int flags)
{
	if (!(flags & CLONE_VM) ||
	    ((flags & CLONE_THREAD) && (flags & CLONE_SETTLS)))
		return;
	if ((flags & CLONE_THREAD) || !(flags & CLONE_VFORK))
		cow__park_shared();
	else
		preload_vfork_mark();
}

typedef int clone_fn(int (*)(void *), void *, int, void *, ...);

/* Reads three more arguments even if the caller gave none, as libc does. */
EXPORT int
clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	struct beginning b = { fn, arg, NULL, flags, PRELOAD_FORK_MISSED };
	void *parent_tid, *tls, *child_tid;
	pid_t pid;
	va_list ap;

	va_start(ap, arg);
	parent_tid = va_arg(ap, void *);
	tls = va_arg(ap, void *);
	child_tid = va_arg(ap, void *);
	va_end(ap);
	NEXT(clone_fn *, "clone")
	note_sharing(flags);
	if (!fn || !stack || (flags & CLONE_VM))
		return f(fn, stack, flags, arg, parent_tid, tls, child_tid);
	b.how = preload_fork_begin();
	if (flags & CLONE_CHILD_SETTID)
		b.number = child_tid;
	pid = f(run_child, stack, flags, &b, parent_tid, tls, child_tid);
	return b.how == PRELOAD_FORK_PREPARED ? preload_fork_end(pid) : pid;
}

/* glibc exports this name as well. */
EXPORT int __clone(int (*)(void *), void *, int, void *, ...)
        __attribute__((alias("clone"), copy(clone)));

static pid_t
heal_after_wait(pid_t pid, bool blocked)
{
	int saved = errno;

	if (pid > 0 && !preload_sandboxed())
		preload_heal_after_wait(blocked);
	errno = saved;
	return pid;
}

typedef pid_t wait_fn(int *);
typedef pid_t waitpid_fn(pid_t, int *, int);
typedef pid_t wait3_fn(int *, int, struct rusage *);
typedef pid_t wait4_fn(pid_t, int *, int, struct rusage *);
typedef int waitid_fn(idtype_t, id_t, siginfo_t *, int);

/* A wait is a safe point, too (quiet/park.h). */
#define PARKED(type, call_next, status, usage)                                 \
	struct cow__park_call call;                                            \
	struct cow__park_thread *t;                                            \
	type r;                                                                \
	preload_call(&call);                                                   \
	preload_may_write(&call, status, sizeof(*(status)));                   \
	preload_may_write(&call, usage, sizeof(struct rusage));                \
	t = preload_park(&call);                                               \
	r = call_next;                                                         \
	preload_unpark(t, &call)

EXPORT pid_t
wait(int *status)
{
	NEXT(wait_fn *, "wait")
	PARKED(pid_t, f(status), status, NULL);
	return heal_after_wait(r, true);
}

EXPORT pid_t
waitpid(pid_t pid, int *status, int options)
{
	NEXT(waitpid_fn *, "waitpid")
	PARKED(pid_t, f(pid, status, options), status, NULL);
	return heal_after_wait(r, !(options & WNOHANG));
}

EXPORT pid_t
wait3(int *status, int options, struct rusage *usage)
{
	NEXT(wait3_fn *, "wait3")
	PARKED(pid_t, f(status, options, usage), status, usage);
	return heal_after_wait(r, !(options & WNOHANG));
}

EXPORT pid_t
wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	NEXT(wait4_fn *, "wait4")
	PARKED(pid_t, f(pid, status, options, usage), status, usage);
	return heal_after_wait(r, !(options & WNOHANG));
}

EXPORT int
waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	NEXT(waitid_fn *, "waitid")
	PARKED(int, f(type, id, info, options), info, NULL);
	if (r == 0)
		(void)heal_after_wait(1, !(options & WNOHANG));
	return r;
}
