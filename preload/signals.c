/* SPDX-License-Identifier: MIT */
/*
 * Signal handlers go through gates; waits for signals are safe points (memfd/park.h)
 *
 * The kernel calls a gate in place of each handler of the program. A gate waits while
 * a prover has the floor, then calls the handler. What the program asks about its
 * handlers is answered as if there were no gates.
 *
 * Each signal has two gates in turn, each with a handler of its own: while a new
 * handler is being set, a signal may still be on its way to the old one.
 *
 * A gate leaves all as it was: the kernel's mask, flags and stack are those that the
 * program asked for, and SA_RESETHAND resets the gate as it would reset the handler.
 */
#undef _FORTIFY_SOURCE
#include "preload/next.h"
#include "preload/park.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SIGNALS 64

typedef void handler_fn(int, void *, void *);
typedef void simple_fn(int);

static struct {
	handler_fn *of[2]; /* what each gate calls */
	uint8_t last;      /* the gate that was used last */
} handlers[SIGNALS + 1];

static uint32_t lock; /* of the table, and of the kernel's beside it */

int (*preload_next_sigaction)(int, const struct sigaction *, struct sigaction *);

static void
pass(int gate, int sig, void *info, void *context)
{
	struct cow__park_thread *t = preload_thread;
	uintptr_t was = 0;
	bool in_vfork = t && t->in_vfork;

	/* Without a record the thread is not known as parked, but waits alike. */
	if (t) {
		was = t->now;
		cow__park_leave(t, true);
	} else if (__atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE) &
	           COW__PARK_FLOOR) {
		cow__park_wait(NULL);
	}
	handlers[sig].of[gate](sig, info, context);
	/* The handler may have made the record: then there is nothing to put back. */
	if (was && (__atomic_load_n(&cow__park_word, __ATOMIC_RELAXED) &
	            COW__PARK_STOPS))
		cow__park_carefully(t, was);
	else if (was)
		__atomic_store_n(&t->now, was, __ATOMIC_RELEASE);
	/* A signal just before vfork(): its handler may have cleared the mark. */
	if (in_vfork)
		t->in_vfork = true;
}

static void
gate_a(int sig, void *info, void *context)
{
	pass(0, sig, info, context);
}

static void
gate_b(int sig, void *info, void *context)
{
	pass(1, sig, info, context);
}

static handler_fn *const gates[] = { gate_a, gate_b };

/* libc's own signals, whose handlers change no memory of the program: glibc's
 * SIGCANCEL (see pthread_cancel) and SIGSETXID, musl's timer, cancel and synccall. */
#ifdef __GLIBC__
#define EXEMPT (3ull << 31)
#else
#define EXEMPT (7ull << 31)
#endif

/* Not SIG_DFL, SIG_IGN, SIG_HOLD or SIG_ERR. */
static bool
is_handler(const void *p)
{
	return (uintptr_t)p > 2 && p != (void *)SIG_ERR;
}

/* All signals are blocked meanwhile: a handler may set handlers. */
static void
table_lock(uint64_t *old)
{
	const uint64_t all = UINT64_MAX;

	(void)cow__syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)old,
	                   sizeof(all), 0, 0);
	while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
		(void)cow__syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

static void
table_unlock(const uint64_t *old)
{
	__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
	(void)cow__syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)old, 0,
	                   sizeof(*old), 0, 0);
}

/* The gate for a handler that the program is about to set. A child of vfork() sets
 * handlers of its own, but shares this table: it gets none. */
static void *
gate_for(int sig, void *handler)
{
	int gate;

	if (sig < 1 || sig > SIGNALS || !is_handler(handler) ||
	    preload_is_vfork_child())
		return handler;
	gate = !handlers[sig].last;
	memcpy(&handlers[sig].of[gate], &handler, sizeof(handler));
	return (void *)gates[gate];
}

/* The kernel has it. */
static void
was_set(int sig, const void *gate)
{
	for (int i = 0; i < 2; i++)
		if (gate == (void *)gates[i])
			handlers[sig].last = (uint8_t)i;
}

/* What the program set, in place of a gate. `last` may be the other gate by now. */
static void *
handler_of(int sig, void *found)
{
	void *p = found;

	if (preload_stop_has(found))
		return (void *)SIG_DFL;
	for (int gate = 0; gate < 2; gate++)
		if (found == (void *)gates[gate])
			memcpy(&p, &handlers[sig].of[gate], sizeof(p));
	return p;
}

EXPORT int
sigaction(int sig, const struct sigaction *restrict act,
          struct sigaction *restrict old)
{
	struct sigaction ours;
	uint64_t mask;
	int r;

	if (!preload_next_sigaction)
		preload_signals_init();
	if (sig < 1 || sig > SIGNALS)
		return preload_next_sigaction(sig, act, old);
	if (act)
		ours = *act; /* before the signals are blocked: it may fault */
	table_lock(&mask);
	if (preload_stop_action(sig, act ? &ours : NULL, old)) {
		table_unlock(&mask);
		return 0;
	}
	if (act)
		ours.sa_handler =
		        (simple_fn *)gate_for(sig, (void *)ours.sa_handler);
	r = preload_next_sigaction(sig, act ? &ours : NULL, old);
	if (r == 0 && old)
		old->sa_handler =
		        (simple_fn *)handler_of(sig, (void *)old->sa_handler);
	if (r == 0 && act)
		was_set(sig, (void *)ours.sa_handler);
	table_unlock(&mask);
	return r;
}

/* sigset() blocks or opens the signal itself. */
static void
keep_bit(int sig, uint64_t *mask)
{
	uint64_t now, bit = 1ull << (sig - 1);

	(void)cow__syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&now,
	                   sizeof(now), 0, 0);
	(void)now;
	*mask = (*mask & ~bit) | (now & bit);
}

/* The signal of memfd/stop.h has its own table. */
static bool
older_stop(int sig, simple_fn *handler, simple_fn **was)
{
	struct sigaction a = { .sa_handler = handler }, old;

	if (handler == SIG_HOLD || !preload_stop_action(sig, &a, &old))
		return false;
	*was = old.sa_handler;
	return true;
}

/* The flags and the mask of the older functions are libc's business. */
#define OLDER(name, changes_mask)                                              \
	EXPORT simple_fn *name(int sig, simple_fn *handler);                   \
	EXPORT simple_fn *name(int sig, simple_fn *handler)                    \
	{                                                                      \
		static simple_fn *(*next)(int, simple_fn *);                   \
		simple_fn *was;                                                \
		void *gate;                                                    \
		uint64_t mask;                                                 \
                                                                               \
		if (!next) {                                                   \
			void *p = preload_next_symbol(#name);                  \
                                                                               \
			memcpy(&next, &p, sizeof(p));                          \
		}                                                              \
		if (!next) {                                                   \
			errno = ENOSYS;                                        \
			return SIG_ERR;                                        \
		}                                                              \
		table_lock(&mask);                                             \
		if (older_stop(sig, handler, &was)) {                          \
			table_unlock(&mask);                                   \
			return was;                                            \
		}                                                              \
		gate = gate_for(sig, (void *)handler);                         \
		was = next(sig, (simple_fn *)gate);                            \
		if (was != SIG_ERR && sig >= 1 && sig <= SIGNALS) {            \
			was_set(sig, gate);                                    \
			was = (simple_fn *)handler_of(sig, (void *)was);       \
			if (changes_mask)                                      \
				keep_bit(sig, &mask);                          \
		}                                                              \
		table_unlock(&mask);                                           \
		return was;                                                    \
	}
OLDER(signal, false)
OLDER(bsd_signal, false)
OLDER(ssignal, false)
OLDER(sysv_signal, false)
OLDER(__sysv_signal, false)
OLDER(sigset, true)

static int (*next_sigaltstack)(const stack_t *, stack_t *);

EXPORT int
sigaltstack(const stack_t *restrict stack, stack_t *restrict old)
{
	stack_t now;
	int r;

	if (!next_sigaltstack)
		preload_signals_init();
	r = next_sigaltstack(stack, old);
	if (r == 0 && stack && preload_thread &&
	    next_sigaltstack(NULL, &now) == 0) {
		uintptr_t at = (uintptr_t)now.ss_sp;

		if (now.ss_flags & SS_DISABLE)
			at = now.ss_size = 0;
		preload_thread->alternate =
		        (struct cow__park_range){ at, at + now.ss_size };
	}
	return r;
}

#define W(p, bytes) preload_may_write(&call, p, bytes)
#define CALLS(X)                                                               \
	X(sigwait, (const sigset_t *set, int *sig), (set, sig),                \
	  W(sig, sizeof(*sig)))                                                \
	X(sigwaitinfo, (const sigset_t *set, siginfo_t *info), (set, info),    \
	  W(info, sizeof(*info)))                                              \
	X(sigtimedwait,                                                        \
	  (const sigset_t *set, siginfo_t *info, const struct timespec *until), \
	  (set, info, until), W(info, sizeof(*info)))                          \
	X(sigsuspend, (const sigset_t *set), (set), (void)0)                   \
	X(pause, (void), (), (void)0)

#define WRAPPER(name, parameters, arguments, written)                          \
	static int(*next_##name) parameters;                                   \
	EXPORT int name parameters                                             \
	{                                                                      \
		struct cow__park_call call = PRELOAD_CALL;                     \
		struct cow__park_thread *parked;                               \
		int result;                                                    \
                                                                               \
		if (!next_##name)                                              \
			preload_signals_init();                                \
		written;                                                       \
		parked = preload_park(&call);                                  \
		result = next_##name arguments;                                \
		preload_unpark(parked, &call);                                 \
		return result;                                                 \
	}
CALLS(WRAPPER)

void
preload_signals_init(void)
{
	void *p;

#define LOOK(name, parameters, arguments, written)                             \
	p = preload_next_symbol(#name);                                        \
	memcpy(&next_##name, &p, sizeof(p));
	CALLS(LOOK)
	p = preload_next_symbol("sigaction");
	memcpy(&preload_next_sigaction, &p, sizeof(p));
	LOOK(sigaltstack, , , )
	cow__park_gates(gate_a, gate_b, EXEMPT);
}
