/* SPDX-License-Identifier: MIT */
/*
 * Blocking signals: see the header.
 */
#include "memfd/signals.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/gate.h"
#include "memfd/sys.h"
#include "memfd/wait.h"

#include <signal.h>

#define LONGEST_NS 100000000u

static const int idle[] = { SIGCHLD, SIGCONT, SIGURG, SIGWINCH };

static uint32_t sections COW_FORK_DATA; /* futex: threads that leave some signals open */
static uint32_t starting COW_FORK_DATA; /* futex: threads of the engine that don't block all yet */
static uint32_t setters COW_FORK_DATA;  /* threads that may set a handler */
static uint32_t changes;  /* counts them */
static bool setters_tell;

static uint64_t
bit(int sig)
{
	return 1ull << (sig - 1);
}

COW_EXPORT bool
cow__signals_idle(int sig)
{
	for (unsigned i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
		if (sig == idle[i])
			return true;
	return false;
}

/* Those of the four that have no handler. The kernel is asked: a handler may have been
 * set past libc. */
static uint64_t
without_handler(void)
{
	struct cow__kernel_action a;
	uint64_t found = 0;

	for (unsigned i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
		if (sys_rt_sigaction(idle[i], NULL, &a) == 0 &&
		    (uintptr_t)a.handler <= 1 /* SIG_DFL, SIG_IGN */)
			found |= bit(idle[i]);
	return found;
}

/* Never below 0: a thread may have begun before a fork that stored 0. */
static void
count_down(uint32_t *count)
{
	uint32_t n = __atomic_load_n(count, __ATOMIC_RELAXED);

	while (n && !__atomic_compare_exchange_n(count, &n, n - 1, false,
	                                         __ATOMIC_SEQ_CST,
	                                         __ATOMIC_RELAXED))
		continue;
	if (__atomic_load_n(&setters, __ATOMIC_SEQ_CST))
		cow__wake(count);
}

/* Either the setter sees the section, or the section sees the setter. Until the mask is set,
 * and after it is put back, a handler may run, and leave by longjmp(): the section is not
 * counted then. */
COW_EXPORT bool
cow__signals_block(struct cow__signals *ret)
{
	const uint64_t all = UINT64_MAX;
	uint32_t before = __atomic_load_n(&changes, __ATOMIC_SEQ_CST);
	uint64_t idle_now = 0, set;

	if (setters_tell && !__atomic_load_n(&cow__sandboxed, __ATOMIC_RELAXED))
		idle_now = without_handler();
	set = ~idle_now;
	ret->blocked = sys_rt_sigprocmask(SIG_BLOCK, &set, &ret->old) >= 0;
	ret->open = ret->blocked && (idle_now & ~ret->old);
	if (!ret->open)
		return ret->blocked;
	__atomic_fetch_add(&sections, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&setters, __ATOMIC_SEQ_CST) ||
	    __atomic_load_n(&cow__sandboxed, __ATOMIC_SEQ_CST) ||
	    __atomic_load_n(&changes, __ATOMIC_SEQ_CST) != before) {
		(void)sys_rt_sigprocmask(SIG_BLOCK, &all, NULL);
		count_down(&sections);
		ret->open = false;
	}
	return true;
}

COW_EXPORT void
cow__signals_restore(const struct cow__signals *signals)
{
	if (signals->open)
		count_down(&sections);
	if (signals->blocked)
		(void)sys_rt_sigprocmask(SIG_SETMASK, &signals->old, NULL);
}

void
cow__signals_thread_starts(void)
{
	__atomic_fetch_add(&starting, 1, __ATOMIC_SEQ_CST);
}

void
cow__signals_thread_fails(void)
{
	count_down(&starting);
}

void
cow__signals_thread(void)
{
	const uint64_t all = UINT64_MAX;

	(void)sys_rt_sigprocmask(SIG_SETMASK, &all, NULL);
	count_down(&starting);
}

void
cow__signals_setters_tell(void)
{
	setters_tell = true;
}

COW_EXPORT void
cow__signals_handler_begin(void)
{
	uint64_t until = cow__now() + LONGEST_NS, now;
	uint32_t n;

	__atomic_fetch_add(&setters, 1, __ATOMIC_SEQ_CST);
	while ((n = __atomic_load_n(&sections, __ATOMIC_SEQ_CST)) &&
	       (now = cow__now()) < until)
		cow__wait(&sections, n, until - now);
	while ((n = __atomic_load_n(&starting, __ATOMIC_SEQ_CST)))
		cow__wait(&starting, n, 0);
}

COW_EXPORT void
cow__signals_handler_end(void)
{
	__atomic_fetch_add(&changes, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&setters, 1, __ATOMIC_SEQ_CST);
}

COW_FORK_CODE void
cow__signals_child(void)
{
	sections = starting = setters = 0;
}
