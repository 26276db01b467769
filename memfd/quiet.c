/* SPDX-License-Identifier: MIT */
/*
 * Quiet moments: see the header
 *
 * Alone. unshare(CLONE_VM) succeeds, and does nothing, exactly when the caller is
 * the only thread and no other process (such as a child of vfork()) uses its
 * address space. The kernel's check is the one we need, and it needs no /proc.
 *
 * With other threads. Each must sit in a private futex wait without timeout. Only
 * a thread of this process could wake it, and all of them sit there.
 * /proc/self/task/TID/syscall shows it ("running" otherwise). What remains is
 * signals: a signal from outside could run a handler in a sleeping thread. So a
 * gate replaces every handler of the program before the look. The gate makes a
 * handler wait until the quiet moment is over, and then calls it as if nothing
 * had been. The caller's own signals are blocked meanwhile.
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
#include "memfd/quiet.h"
#include "memfd/sys.h"
#include "memfd/wait.h"

#include <linux/sched.h>

#define SIGNALS 64
#define SA_SIGINFO_ 4u
#define SA_RESETHAND_ 0x80000000u
#define SIGKILL_ 9
#define SIGSTOP_ 19

/* The kernel's struct sigaction, not libc's, of both architectures. aarch64 has a
 * restorer only for 32-bit programs, but room for it in all. */
struct kernel_action {
	void (*handler)(int, void *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

static struct kernel_action saved[SIGNALS + 1];
static uint64_t gated;      /* which have a gate now */
static uint64_t old_mask;   /* the caller's signal mask */
static uint32_t gate_shut;  /* futex: handlers wait while 1 ... */
static uint32_t gate_owner; /* ... in this process: a raw fork's child goes through */
static bool masked;

struct range {
	uintptr_t from, to;
};

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
		struct kernel_action a;

		if (sig == SIGKILL_ || sig == SIGSTOP_)
			continue;
		if (sys_rt_sigaction(sig, NULL, &a) < 0)
			continue;
		if ((uintptr_t)a.handler <= 1)
			continue;
		if (a.flags & SA_RESETHAND_)
			return false;
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
	struct kernel_action now;

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
is_in(const struct range *r, uintptr_t at)
{
	return at >= r->from && at < r->to;
}

/* "202 0x7f.. 0x189 0x0 0x0 ...": number, six arguments, stack pointer. */
static bool
in_endless_futex_wait(const char *line, const struct range *memory)
{
	unsigned long nr, op, timeout;

	if (*line < '0' || *line > '9')
		return false;
	nr = parse_number(&line);
	(void)parse_number(&line);
	op = parse_number(&line);
	(void)parse_number(&line);
	timeout = parse_number(&line);
	(void)parse_number(&line);
	(void)parse_number(&line);
	if (is_in(memory, parse_number(&line)))
		return false;
	if (nr != SYS_futex || timeout != 0 || !(op & FUTEX_PRIVATE_FLAG))
		return false;
	op &= ~(unsigned long)(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
	return op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET;
}

static bool
task_sleeps(int dir, const char *name, const struct range *memory)
{
	char path[40], line[256];
	int at = 0, fd;
	long r;

	while (at < 20 && name[at]) {
		path[at] = name[at];
		at++;
	}
	for (const char *s = "/syscall"; *s; s++)
		path[at++] = *s;
	path[at] = '\0';
	fd = (int)sys_openat(dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	r = sys_read(fd, line, sizeof(line) - 1);
	(void)sys_close(fd);
	if (r <= 0)
		return false;
	line[r] = '\0';
	return in_endless_futex_wait(line, memory);
}

/* `shared`: another user of this address space exists. If there is no other
 * thread, that is another process, of which nothing is known. */
static bool
others_sleep(uint32_t helper, bool shared, const struct range *memory)
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
			if (tid != helper)
				quiet = task_sleeps(dir, e->name, memory);
		}
	}
	(void)sys_close(dir);
	return quiet && seen_self && !shared;
}

bool
cow__quiet_begin(uint32_t helper, uintptr_t from, uintptr_t to)
{
	const struct range memory = { from, to };
	const uint64_t all = UINT64_MAX;
	bool shared;
	long r;

	if (is_in(&memory, (uintptr_t)__builtin_frame_address(0)))
		return false;
	masked = sys_rt_sigprocmask(2 /* SIG_SETMASK */, &all, &old_mask) >= 0;
	if (!masked)
		return false;
	r = sys_unshare(CLONE_VM);
	if (r == 0)
		return true;
	shared = r == -EINVAL;
	if (others_sleep(helper, shared, &memory) && gates_shut() &&
	    others_sleep(helper, shared, &memory))
		return true;
	cow__quiet_end();
	return false;
}

void
cow__quiet_end(void)
{
	if (__atomic_load_n(&gate_shut, __ATOMIC_RELAXED))
		gates_open();
	if (masked)
		(void)sys_rt_sigprocmask(2 /* SIG_SETMASK */, &old_mask, NULL);
	masked = false;
}
