/* SPDX-License-Identifier: MIT */
/*
 * Quiet moments: see the header
 *
 * Alone. unshare(CLONE_VM) succeeds, and does nothing, exactly when the caller is
 * the only thread and no other process (such as a child of vfork()) uses its
 * address space. The kernel's check is the one we need, and it needs no /proc.
 *
 * With safe points. The shim knows who is parked. The link count of /proc/self/task
 * is the number of threads plus two. If the parked ones, the
 * caller and the helper are all of them, the proof is done. Any other thread must
 * sleep as below, and on a word that no parked thread's call could wake.
 *
 * With other threads, and without safe points. Each must sit in a private futex
 * wait without timeout. Only a thread of this process could wake it, and all of
 * them sit there. /proc/self/task/TID/syscall shows it ("running" otherwise). What
 * remains is signals: a signal from outside could run a handler in a sleeping
 * thread. So a gate replaces every handler of the program before the look. The
 * gate makes a handler wait until the quiet moment is over, and then calls it as
 * if nothing had been. The kernel may reset a handler when it calls it
 * (SA_RESETHAND): it resets the gate then, and the gate calls the handler. The
 * caller's own signals are blocked meanwhile.
 *
 * The order matters: gates first, look second. A signal that came before its gate
 * shows as a thread that is not in the wait. One that comes later meets the gate.
 * There is also a look before the gates, since a thread that runs may set
 * handlers at any time, and would find ours. If a thread woke up in between, the
 * handlers that it set stay.
 *
 * Another process that shares our memory is not in the list of tasks. Where we
 * have one thread, the kernel's check tells of it. A child of vfork() has one
 * thread, too, while the threads of its parent run on.
 *
 * Not seen: such a process, made by a bare clone(CLONE_VM) without CLONE_THREAD
 * or CLONE_VFORK, while we have threads (the helper is one); debuggers that write
 * our memory; a sleeper's alternate signal stack in the memory that is asked
 * about.
 */
#include "quiet/quiet.h"
#include "memfd/forked.h"
#include "memfd/sys.h"
#include "memfd/thread.h"
#include "memfd/wait.h"

#include <linux/sched.h>

#define SIGNALS 64
#define SA_SIGINFO_ 4u
#define STACK_NEAR ((unsigned long)64 << 10)
#define SIGKILL_ 9
#define SIGSTOP_ 19

static struct cow__kernel_action saved[SIGNALS + 1];
static uint64_t gated;      /* which have a gate now */
static struct cow__signals signals COW_FORK_DATA; /* of the caller */
static uint32_t gate_shut COW_FORK_DATA;  /* futex: handlers wait while 1 ... */
static uint32_t gate_owner COW_FORK_DATA; /* ... in this process: a raw fork's child goes through */
static bool at_safe_points COW_FORK_DATA; /* this quiet moment has the floor */
static uintptr_t lock_word COW_FORK_DATA; /* who waits for it is in the middle of a call of ours */

static void
gate(int sig, void *info, void *context)
{
	while (__atomic_load_n(&gate_shut, __ATOMIC_ACQUIRE) &&
	       gate_owner == (uint32_t)sys_getpid())
		cow__wait(&gate_shut, 1, 0);
	saved[sig].handler(sig, info, context);
}

static bool
gates_shut(void)
{
	gate_owner = (uint32_t)sys_getpid();
	__atomic_store_n(&gate_shut, 1, __ATOMIC_RELEASE);
	for (int sig = 1; sig <= SIGNALS; sig++) {
		struct cow__kernel_action a;

		if (sig == SIGKILL_ || sig == SIGSTOP_)
			continue;
		if (sys_rt_sigaction(sig, NULL, &a) < 0)
			return false;
		if ((uintptr_t)a.handler <= 1)
			continue;
		/* A program may have read the gate while it was shut, and set it
		 * again later: then `saved` is right. */
		if (a.handler != gate)
			saved[sig] = a;
		a.handler = gate;
		a.flags |= SA_SIGINFO_;
		if (sys_rt_sigaction(sig, &a, NULL) < 0)
			return false;
		gated |= 1ull << (sig - 1);
	}
	return true;
}

static void
gates_open(void)
{
	struct cow__kernel_action now;

	for (int sig = 1; sig <= SIGNALS; sig++)
		if (gated >> (sig - 1) & 1 &&
		    sys_rt_sigaction(sig, NULL, &now) == 0 && now.handler == gate)
			(void)sys_rt_sigaction(sig, &saved[sig], NULL);
	gated = 0;
	__atomic_store_n(&gate_shut, 0, __ATOMIC_RELEASE);
	cow__wake(&gate_shut);
}

static unsigned long
parse_number(const char **at)
{
	unsigned long n = 0;
	const char *p = *at;
	int base = 10;

	while (*p == ' ')
		p++;
	if (p[0] == '0' && p[1] == 'x') {
		base = 16;
		p += 2;
	}
	for (;; p++) {
		int digit;

		if (*p >= '0' && *p <= '9')
			digit = *p - '0';
		else if (base == 16 && *p >= 'a' && *p <= 'f')
			digit = *p - 'a' + 10;
		else
			break;
		n = n * (unsigned long)base + (unsigned long)digit;
	}
	*at = p;
	return n;
}

static bool
is_in(const struct cow__park_range *r, uintptr_t at)
{
	return at >= r->from && at < r->to;
}

/* "202 0x7f.. 0x189 0x0 0x0 ...": number, six arguments, stack pointer. */
static bool
in_endless_futex_wait(const char *line, const struct cow__park_range *memory)
{
	unsigned long nr, op, timeout, word, stack;

	if (*line < '0' || *line > '9')
		return false;
	nr = parse_number(&line);
	word = parse_number(&line);
	op = parse_number(&line);
	(void)parse_number(&line);
	timeout = parse_number(&line);
	(void)parse_number(&line);
	(void)parse_number(&line);
	stack = parse_number(&line);
	if (is_in(memory, stack))
		return false;
	/* libc's setuid() waits on its stack for a signal handler in each thread. */
	if (word - stack < STACK_NEAR)
		return false;
	if (nr != SYS_futex || timeout != 0)
		return false;
	if (word == lock_word || (at_safe_points && cow__park_may_wake(word)))
		return false;
	/* pthread_join(): only the end of that thread wakes it. */
	if (!(op & FUTEX_PRIVATE_FLAG) &&
	    !(at_safe_points && cow__park_joins(word)))
		return false;
	op &= ~(unsigned long)(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
	return op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET;
}

/* Reads a file of a task. False: it can't be read. */
static bool
task_read(int dir, const char *name, const char *file, char *line, size_t bytes)
{
	char path[40];
	int at = 0, fd;
	long r;

	while (at < 20 && name[at]) {
		path[at] = name[at];
		at++;
	}
	while (*file)
		path[at++] = *file++;
	path[at] = '\0';
	fd = (int)sys_openat(dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	r = sys_read(fd, line, bytes - 1);
	(void)sys_close(fd);
	if (r <= 0)
		return false;
	line[r] = '\0';
	return true;
}

/* How often a processor has begun to run the task. False: that can't be told. */
static bool
task_runs(int dir, const char *name, uint64_t *ret)
{
	char line[96];
	const char *at = line;

	if (!task_read(dir, name, "/schedstat", line, sizeof(line)))
		return false;
	(void)parse_number(&at);
	(void)parse_number(&at);
	*ret = parse_number(&at);
	return true;
}

/* Two looks that must agree: the threads that sleep, and how often each has run. One
 * look would not do. A thread may sleep when it is looked at, and be woken by another
 * one that sleeps when its turn comes. */
struct look {
	bool second;
	uint64_t sum;
};

/* The first look reads the number of runs before the state, the second after it. */
static bool
task_sleeps(int dir, const char *name, uint32_t id,
            const struct cow__park_range *memory, struct look *look)
{
	char line[256];
	uint64_t runs = 0;

	if (!look->second && !task_runs(dir, name, &runs))
		return false;
	if (!task_read(dir, name, "/syscall", line, sizeof(line)) ||
	    !in_endless_futex_wait(line, memory))
		return false;
	if (look->second && !task_runs(dir, name, &runs))
		return false;
	look->sum += (runs + 1) * (id * 0x9e3779b97f4a7c15u | 1);
	return true;
}

/* `shared`: another user of this address space exists. If there is no other
 * thread, that is another process, of which nothing is known. */
static bool
one_look(uint32_t helper, bool shared, const struct cow__park_range *memory,
         struct look *look)
{
	struct {
		uint64_t ino;
		int64_t off;
		unsigned short len;
		unsigned char type;
		char name[];
	} *e;
	_Alignas(8) char buf[4096];
	uint32_t self = (uint32_t)sys_gettid();
	bool quiet = true, seen_self = false;
	int dir;
	long r;

	dir = (int)sys_open("/proc/self/task",
	                    O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir < 0)
		return false;
	while (quiet && (r = sys_getdents(dir, buf, sizeof(buf))) != 0) {
		if (r < 0)
			quiet = false;
		for (long at = 0; quiet && at < r; at += e->len) {
			const char *name;
			uint32_t tid;

			e = (void *)(buf + at);
			name = e->name;
			if (*name == '.')
				continue;
			tid = (uint32_t)parse_number(&name);
			if (tid == self) {
				seen_self = true;
				continue;
			}
			shared = false;
			if (tid == helper ||
			    (at_safe_points && cow__park_knows(tid)))
				continue;
			quiet = task_sleeps(dir, e->name, tid, memory, look);
		}
	}
	(void)sys_close(dir);
	return quiet && seen_self && !shared;
}

/* Does every thread but the caller, the helper and the parked ones sleep? */
static bool
others_sleep(uint32_t helper, bool shared, const struct cow__park_range *memory)
{
	struct look first = { false, 0 }, second = { true, 0 };

	return one_look(helper, shared, memory, &first) &&
	       one_look(helper, shared, memory, &second) &&
	       first.sum == second.sum;
}

static enum cow__busy
begin_at_safe_points(uint32_t helper, const struct cow__park_range *memory,
                     uint64_t stop_ns, bool sleepers)
{
	uint32_t parked, ours = 1;
	enum cow__busy busy;
	uint64_t all;

	ours += helper && helper != (uint32_t)sys_gettid();
	all = stop_ns ? cow__thread_count() : 0;
	busy = cow__park_begin(all > ours ? stop_ns : 0, all - ours, sleepers,
	                       &parked);
	if (busy)
		return busy;
	at_safe_points = true;
	/* After the look at the records: whoever could make a thread now is
	 * parked. */
	all = cow__thread_count();
	if (all != parked + ours && !others_sleep(helper, false, memory))
		busy = !all                ? COW__BUSY_UNKNOWN
		       : cow__park_running() ? COW__BUSY_RUNNING
		                             : COW__BUSY_BLOCKED;
	else if (!cow__park_all_live())
		busy = COW__BUSY_RUNNING;
	else if (!cow__park_uncancelled(all == parked + ours))
		busy = COW__BUSY_CANCEL;
	else if (!cow__park_gated())
		busy = COW__BUSY_HANDLER;
	if (!busy)
		return COW__QUIET;
	at_safe_points = false;
	cow__park_end();
	return busy;
}

enum cow__busy
cow__quiet_begin(uint32_t helper, const void *lock, uintptr_t from, uintptr_t to,
                 uint64_t stop_ns, bool sleepers)
{
	const struct cow__park_range memory = { from, to };
	enum cow__busy busy = COW__BUSY_HANDLER;
	long r = -EINVAL;

	lock_word = (uintptr_t)lock;
	if (__atomic_load_n(&cow__sandboxed, __ATOMIC_RELAXED))
		return COW__BUSY_RUNNING;
	if (is_in(&memory, (uintptr_t)__builtin_frame_address(0)))
		return COW__BUSY_STACK;
	if (!cow__signals_block(&signals))
		return COW__BUSY_RUNNING;
	if (helper != (uint32_t)sys_gettid())
		r = sys_unshare(CLONE_VM);
	if (r == 0)
		return COW__QUIET;
	if (cow__park_used())
		busy = begin_at_safe_points(helper, &memory, stop_ns, sleepers);
	/* Without the shim, or beside handlers that it does not know. */
	if (busy == COW__BUSY_HANDLER) {
		busy = others_sleep(helper, r == -EINVAL, &memory) &&
		                       gates_shut() &&
		                       others_sleep(helper, r == -EINVAL, &memory)
		               ? COW__QUIET
		       : cow__park_used() ? COW__BUSY_HANDLER
		                          : COW__BUSY_RUNNING;
	}
	if (busy)
		cow__quiet_end();
	return busy;
}

void
cow__quiet_end(void)
{
	if (at_safe_points)
		cow__park_end();
	at_safe_points = false;
	if (__atomic_load_n(&gate_shut, __ATOMIC_RELAXED))
		gates_open();
	cow__signals_restore(&signals);
	signals = (struct cow__signals){ 0 };
}

bool
cow__quiet_written(uintptr_t at, uintptr_t to, struct cow__park_range *ret)
{
	bool found = at_safe_points && cow__park_written(at, to, ret);
	struct cow__park_range r;

	if (cow__park_always_written(at, to, &r) &&
	    (!found || r.from < ret->from)) {
		*ret = r;
		found = true;
	}
	return found;
}

bool
cow__quiet_awaited(void)
{
	return at_safe_points && cow__park_awaited();
}

bool
cow__quiet_stopped(void)
{
	return at_safe_points && cow__park_stopped();
}
