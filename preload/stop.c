/* SPDX-License-Identifier: MIT */
/*
 * The signal that stops running threads: option quiet=signal (quiet/stop.h)
 *
 * It is a real-time signal that the program does not use, from SIGRTMAX downwards. The
 * program's sigaction() does not see it: what the program sets and asks is kept here. If
 * it sets a handler, the shim moves to the next signal, or stops no threads any more.
 *
 * The handler runs on the thread's signal stack, if it has one. So it needs no room on
 * small stacks of coroutines.
 */
#undef _FORTIFY_SOURCE
#include "preload/park.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static int stop_signal; /* 0: none */
static struct sigaction wanted; /* what the program set for it */
static struct sigaction ours;   /* what the kernel has */

bool
preload_stop_used(void)
{
	return __atomic_load_n(&stop_signal, __ATOMIC_RELAXED) != 0;
}

bool
preload_stop_is(int sig)
{
	return sig == __atomic_load_n(&stop_signal, __ATOMIC_RELAXED);
}

static bool
is_handler(const struct sigaction *a)
{
	return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN;
}

/* Somebody else's signal. Without a handler of the program it would have ended the
 * process, or done nothing. */
static void
pass_on(int sig)
{
	struct sigaction none = { .sa_handler = SIG_DFL };

	if (wanted.sa_handler == SIG_IGN)
		return;
	(void)preload_next_sigaction(sig, &none, NULL);
	(void)cow__syscall(SYS_tgkill, preload_pid(), cow__syscall(SYS_gettid, 0, 0, 0, 0, 0, 0),
	                   sig, 0, 0, 0);
}

static void
stop(int sig, siginfo_t *info, void *context)
{
	uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
	struct cow__park_thread *t = preload_thread;
	struct cow__signals signals;
	int saved = errno;

	(void)context;
	/* It is a section: whoever sets a handler waits for its end. */
	(void)cow__signals_block(&signals);
	if (!cow__stop_is_ours(info))
		pass_on(sig);
	else if (t)
		cow__stop_here(t, info,
		               stack - preload_window_start <
		                       preload_window_bytes);
	cow__signals_restore(&signals);
	errno = saved;
}

bool
preload_stop_has(const void *handler)
{
	return handler == (void *)stop;
}

/* All signals are blocked while the handler runs, but those that do nothing
 * (memfd/signals.h). */
static void
fill_mask(void)
{
	struct sigaction a;

	sigfillset(&ours.sa_mask);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		if (cow__signals_idle(sig) &&
		    preload_next_sigaction(sig, NULL, &a) == 0 && !is_handler(&a))
			sigdelset(&ours.sa_mask, sig);
}

/* A prover may read the action and set it again, but with this lock. The bit stays for good. */
void
preload_stop_blocks(int sig)
{
	struct cow__signals old;

	if (!stop_signal || sigismember(&ours.sa_mask, sig))
		return;
	cow__park_lock(&old);
	sigaddset(&ours.sa_mask, sig);
	(void)preload_next_sigaction(stop_signal, &ours, NULL);
	cow__park_unlock(&old);
}

/* Takes the next signal below `sig` that has no handler and is not blocked by the program,
 * whose mask is `blocked`. */
static void
take_below(int sig, uint64_t blocked)
{
	ours.sa_sigaction = stop;
	ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
	fill_mask();
	while (--sig >= SIGRTMIN)
		if (!(blocked >> (sig - 1) & 1) &&
		    preload_next_sigaction(sig, NULL, &wanted) == 0 &&
		    wanted.sa_handler == SIG_DFL &&
		    preload_next_sigaction(sig, &ours, NULL) == 0)
			break;
	if (sig < SIGRTMIN)
		sig = 0;
	__atomic_store_n(&stop_signal, sig, __ATOMIC_RELAXED);
	cow__stop_set(sig, (void (*)(int, void *, void *))stop);
}

void
preload_stop_begin(uint64_t blocked)
{
	preload_park_note();
	take_below(SIGRTMAX + 1, blocked);
}

bool
preload_stop_action(int sig, const struct sigaction *act, struct sigaction *old,
                    uint64_t blocked)
{
	struct sigaction was;

	if (!sig || sig != stop_signal)
		return false;
	was = wanted;
	if (act && is_handler(act)) {
		/* First the new one, so that no stop is under way with the old. */
		take_below(sig, blocked);
		(void)preload_next_sigaction(sig, &was, NULL);
		return false;
	}
	if (act)
		wanted = *act;
	if (old)
		*old = was;
	return true;
}
