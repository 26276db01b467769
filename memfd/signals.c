/* SPDX-License-Identifier: MIT */
/*
 * Blocking signals: see the header.
 */
#include "memfd/signals.h"
#include "memfd/export.h"
#include "memfd/park.h"
#include "memfd/sys.h"
#include "memfd/wait.h"

#include <signal.h>

#define LONGEST_NS 100000000u

static const int idle[] = { SIGCHLD, SIGCONT, SIGURG, SIGWINCH };

static uint32_t sections; /* futex: threads that leave some signals open */
static uint32_t setters;  /* threads that may set a handler */

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

static void
section_end(void)
{
	__atomic_fetch_sub(&sections, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&setters, __ATOMIC_SEQ_CST))
		cow__wake(&sections);
}

/* Either the setter sees the section, or the section sees the setter. */
COW_EXPORT bool
cow__signals_block(struct cow__signals *ret)
{
	uint64_t set = UINT64_MAX;

	ret->open = false;
	if (cow__park_used()) {
		__atomic_fetch_add(&sections, 1, __ATOMIC_SEQ_CST);
		ret->open = !__atomic_load_n(&setters, __ATOMIC_SEQ_CST);
		if (ret->open)
			set = ~without_handler();
		else
			section_end();
	}
	ret->blocked = sys_rt_sigprocmask(SIG_BLOCK, &set, &ret->old) >= 0;
	return ret->blocked;
}

COW_EXPORT void
cow__signals_restore(const struct cow__signals *signals)
{
	if (signals->blocked)
		(void)sys_rt_sigprocmask(SIG_SETMASK, &signals->old, NULL);
	if (signals->open)
		section_end();
}

void
cow__signals_thread_starts(void)
{
	__atomic_fetch_add(&sections, 1, __ATOMIC_SEQ_CST);
}

void
cow__signals_thread_fails(void)
{
	section_end();
}

void
cow__signals_thread(void)
{
	const uint64_t all = UINT64_MAX;

	(void)sys_rt_sigprocmask(SIG_SETMASK, &all, NULL);
	section_end();
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
}

COW_EXPORT void
cow__signals_handler_end(void)
{
	__atomic_fetch_sub(&setters, 1, __ATOMIC_SEQ_CST);
}

void
cow__signals_child(void)
{
	sections = setters = 0;
}
