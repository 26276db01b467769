/* SPDX-License-Identifier: MIT */
/*
 * Signal handlers go through gates (quiet/park.h)
 *
 * The kernel calls a gate in place of each handler of the program. A gate waits while
 * a prover has the floor, then calls the handler. What the program asks about its
 * handlers is answered as if there were no gates.
 *
 * Each signal has two gates in turn, each with a handler of its own: while a new
 * handler is being set, a signal may still be on its way to the old one.
 *
 * A lock guards the table. A fork holds it, so that the child finds the table whole. A
 * child of vfork() may be killed at any time: it neither takes the lock nor changes the
 * table, which is its parent's. Nor does the child of a raw fork, where a thread that the
 * child lacks may have the lock for ever.
 *
 * A gate leaves all as it was: the kernel's mask, flags and stack are those that the
 * program asked for, and SA_RESETHAND resets the gate as it would reset the handler. Where
 * the signal interrupts the program's own code, the gate only jumps to the handler.
 */
#undef _FORTIFY_SOURCE
#include "preload/next.h"
#include "preload/park.h"

#include "core/base/mutex.h"
#include "core/fork/fork.h"

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
	uint32_t changes;  /* of `of`: counts them */
	uint8_t last;      /* the gate that was used last */
} handlers[SIGNALS + 1];

static struct cow__mutex lock COW_FORK_DATA; /* of the table, and of the kernel's beside it */

/* So many forks of this thread have the lock: a handler may fork within a fork. */
static _Thread_local unsigned forks __attribute__((tls_model("initial-exec")));

int (*preload_next_sigaction)(int, const struct sigaction *, struct sigaction *);

/* What a gate calls. */
static inline handler_fn *
handler_behind(int sig, int gate)
{
	return __atomic_load_n(&handlers[sig].of[gate], __ATOMIC_RELAXED);
}

static __attribute__((noinline)) void
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
	handler_behind(sig, gate)(sig, info, context);
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

/* Did the signal interrupt the program's own code, and does no prover have the floor? Then
 * there is nothing to do before the handler, nor after it. The prover's fence on this
 * processor comes before this look at the word, or it finds the thread running. */
static inline bool
interrupts_program(void)
{
	const struct cow__park_thread *t = preload_thread;

	return !(__atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE) &
	         (COW__PARK_FLOOR | COW__PARK_FENCES)) &&
	       (!t || (!t->now && !t->in_vfork));
}

/* Both calls are jumps, so the gate itself writes nothing: another thread may have made
 * the stack read-only after the kernel put the signal there. */
static inline void
pass_gate(int gate, int sig, void *info, void *context)
{
	if (__builtin_expect(interrupts_program(), 1))
		handler_behind(sig, gate)(sig, info, context);
	else
		pass(gate, sig, info, context);
}

static void
gate_a(int sig, void *info, void *context)
{
	pass_gate(0, sig, info, context);
}

static void
gate_b(int sig, void *info, void *context)
{
	pass_gate(1, sig, info, context);
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

static void
block_all(uint64_t *old)
{
	const uint64_t all = UINT64_MAX;

	(void)cow__ask(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)old,
	                   sizeof(all), 0, 0);
}

static void
unblock(const uint64_t *old)
{
	(void)cow__ask(SYS_rt_sigprocmask, SIG_SETMASK, (long)old, 0,
	                   sizeof(*old), 0, 0);
}

/* All signals are blocked meanwhile: a handler may set handlers. A handler that interrupts
 * a fork finds the lock in its own thread, and the table whole. A fork of another thread
 * may have the lock for long. */
static void
table_lock(uint64_t *old)
{
	for (;;) {
		block_all(old);
		if (forks || cow__mutex_try_lock(&lock))
			return;
		unblock(old);
		preload_rest();
	}
}

static void
table_unlock(const uint64_t *old)
{
	if (!forks)
		cow__mutex_unlock(&lock);
	unblock(old);
}

/* A fork may take long, and runs code of others. So it does not block signals. */
void
preload_signals_prepare(void)
{
	uint64_t old;

	if (preload_sandboxed() || preload_is_vfork_child())
		return;
	table_lock(&old);
	forks++;
	unblock(&old);
}

void
preload_signals_parent(void)
{
	struct cow__signals old;

	if (!forks || preload_is_vfork_child())
		return;
	(void)cow__signals_block(&old);
	if (!--forks)
		cow__mutex_unlock(&lock);
	cow__signals_restore(&old);
}

/* No other thread has the lock, nor will it give the lock back. */
COW_FORK_CODE void
preload_signals_child(void)
{
	lock = (struct cow__mutex){ 0 };
	forks = 0;
}

/* The gate for a handler that the program is about to set. Locked. */
static void *
gate_for(int sig, void *handler)
{
	handler_fn *f;
	int gate;

	if (sig < 1 || sig > SIGNALS || !is_handler(handler))
		return handler;
	gate = !handlers[sig].last;
	memcpy(&f, &handler, sizeof(f));
	__atomic_store_n(&handlers[sig].changes, handlers[sig].changes + 1,
	                 __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&handlers[sig].of[gate], f, __ATOMIC_RELAXED);
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
	handler_fn *f;

	if (preload_stop_has(found))
		return (void *)SIG_DFL;
	for (int gate = 0; gate < 2; gate++)
		if (found == (void *)gates[gate]) {
			f = __atomic_load_n(&handlers[sig].of[gate],
			                    __ATOMIC_RELAXED);
			memcpy(&p, &f, sizeof(p));
		}
	return p;
}

/* Without the lock. */
static int
plain_action(int sig, const struct sigaction *act, struct sigaction *was)
{
	int r = preload_next_sigaction(sig, act, was);

	if (r == 0 && was)
		was->sa_handler =
		        (simple_fn *)handler_of(sig, (void *)was->sa_handler);
	return r;
}

/* Around a call that gives `sig` a handler (memfd/signals.h). */
static bool
handler_begin(int sig, const void *handler)
{
	if (!cow__signals_idle(sig) || !is_handler(handler))
		return false;
	preload_stop_blocks(sig);
	cow__signals_handler_begin();
	return true;
}

static int
locked_action(int sig, const struct sigaction *act, struct sigaction *was)
{
	struct sigaction ours;
	uint64_t mask = 0;
	bool began;
	int r = 0;

	table_lock(&mask);
	began = act && handler_begin(sig, (void *)act->sa_handler);
	if (!preload_stop_action(sig, act, was, mask)) {
		if (act) {
			ours = *act;
			ours.sa_handler = (simple_fn *)gate_for(
			        sig, (void *)ours.sa_handler);
		}
		r = plain_action(sig, act ? &ours : NULL, was);
		if (r == 0 && act)
			was_set(sig, (void *)ours.sa_handler);
	}
	if (began)
		cow__signals_handler_end();
	table_unlock(&mask);
	return r;
}

/* A question takes no lock, but for the signal that the shim itself uses. The kernel may
 * name a gate whose handler changes before it is read here: a gate is used again by the
 * second change after that. Then it asks again. */
static int
ask_action(int sig, struct sigaction *was)
{
	uint32_t *changes = &handlers[sig].changes, before;
	int r;

	do {
		before = __atomic_load_n(changes, __ATOMIC_ACQUIRE);
		r = preload_next_sigaction(sig, NULL, was);
		if (r < 0)
			return r;
		if ((preload_stop_is(sig) ||
		     preload_stop_has((void *)was->sa_handler)) &&
		    !preload_is_vfork_child())
			return locked_action(sig, NULL, was);
		was->sa_handler =
		        (simple_fn *)handler_of(sig, (void *)was->sa_handler);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (before != __atomic_load_n(changes, __ATOMIC_RELAXED));
	return r;
}

/* Does it neither change the table nor ask for the old handler? The signals of
 * quiet/stop.h are real-time signals, for which the lock is needed. */
static bool
is_simple(int sig, const struct sigaction *act, const struct sigaction *old)
{
	return !old && sig < SIGNALS / 2 && !is_handler((void *)act->sa_handler);
}

EXPORT int
sigaction(int sig, const struct sigaction *restrict act,
          struct sigaction *restrict old)
{
	struct sigaction ours, was = { .sa_handler = SIG_DFL };
	int r;

	if (!preload_next_sigaction)
		preload_signals_init();
	if (sig < 1 || sig > SIGNALS || preload_sandboxed())
		return plain_action(sig, act, old);
	/* The program's memory may fault, and its handler may be needed: it is used before
	 * the signals are blocked, and after that. */
	if (act)
		ours = *act;
	if (!act)
		r = ask_action(sig, &was);
	else if (is_simple(sig, &ours, old) || preload_is_vfork_child())
		r = plain_action(sig, &ours, old ? &was : NULL);
	else
		r = locked_action(sig, &ours, old ? &was : NULL);
	if (r == 0 && old)
		*old = was;
	return r;
}

typedef simple_fn *older_fn(int, simple_fn *);

/* The flags and the mask of the older functions are libc's business. */
static simple_fn *
older(older_fn *next, int sig, simple_fn *handler)
{
	bool locked = !preload_sandboxed() && !preload_is_vfork_child();
	struct sigaction a = { .sa_handler = handler }, old;
	simple_fn *was;
	void *gate = (void *)handler;
	bool began = false;
	uint64_t mask = 0;

	if (locked) {
		table_lock(&mask);
		if (preload_stop_action(sig, &a, &old, mask)) {
			table_unlock(&mask);
			return old.sa_handler;
		}
		began = handler_begin(sig, gate);
		gate = gate_for(sig, gate);
	}
	was = next(sig, (simple_fn *)gate);
	if (was != SIG_ERR && sig >= 1 && sig <= SIGNALS) {
		if (locked)
			was_set(sig, gate);
		was = (simple_fn *)handler_of(sig, (void *)was);
	}
	if (began)
		cow__signals_handler_end();
	if (locked)
		table_unlock(&mask);
	return was;
}

#define OLDER(name)                                                            \
	EXPORT simple_fn *name(int sig, simple_fn *handler);                   \
	EXPORT simple_fn *name(int sig, simple_fn *handler)                    \
	{                                                                      \
		static older_fn *next;                                         \
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
		return older(next, sig, handler);                              \
	}
OLDER(signal)
OLDER(bsd_signal)
OLDER(ssignal)
OLDER(sysv_signal)
OLDER(__sysv_signal)

/* libc's opens the signal before it returns, and so before the lock is free: a handler
 * that runs then could wait for it. */
EXPORT simple_fn *sigset(int sig, simple_fn *handler);
EXPORT simple_fn *
sigset(int sig, simple_fn *handler)
{
	struct sigaction a = { .sa_handler = handler }, old;
	sigset_t set, was;

	sigemptyset(&set);
	sigemptyset(&a.sa_mask);
	if (handler == SIG_ERR || sigaddset(&set, sig) < 0) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (handler == SIG_HOLD) {
		if (sigprocmask(SIG_BLOCK, &set, &was) < 0)
			return SIG_ERR;
		if (!sigismember(&was, sig) && sigaction(sig, NULL, &old) < 0)
			return SIG_ERR;
	} else if (sigaction(sig, &a, &old) < 0 ||
	           sigprocmask(SIG_UNBLOCK, &set, &was) < 0) {
		return SIG_ERR;
	}
	return sigismember(&was, sig) ? SIG_HOLD : old.sa_handler;
}

void
preload_signals_stop_begin(void)
{
	uint64_t mask;

	table_lock(&mask);
	preload_stop_begin(mask);
	table_unlock(&mask);
}

static int (*next_sigaltstack)(const stack_t *, stack_t *);

/* A child of vfork() has its parent's record, but a signal stack of its own. The kernel may
 * fail to write `old`, and has the new stack then. */
EXPORT int
sigaltstack(const stack_t *restrict stack, stack_t *restrict old)
{
	struct cow__park_thread *t = preload_thread;
	stack_t now;
	int r;

	if (!next_sigaltstack)
		preload_signals_init();
	r = next_sigaltstack(stack, old);
	if (stack && t && !(t->in_vfork && preload_is_vfork_child()) &&
	    preload_kernel(SYS_sigaltstack, NULL, &now) == 0) {
		uintptr_t at = (uintptr_t)now.ss_sp;

		if (now.ss_flags & SS_DISABLE)
			at = now.ss_size = 0;
		t->alternate = (struct cow__park_range){ at, at + now.ss_size };
	}
	return r;
}

void
preload_signals_init(void)
{
	void *p;

	p = preload_next_symbol("sigaction");
	memcpy(&preload_next_sigaction, &p, sizeof(p));
	p = preload_next_symbol("sigaltstack");
	memcpy(&next_sigaltstack, &p, sizeof(p));
	cow__park_gates(gate_a, gate_b, EXEMPT);
}
