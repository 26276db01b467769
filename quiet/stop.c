/* SPDX-License-Identifier: MIT */
/*
 * Stops: see the header.
 */
#include "quiet/stop.h"
#include "memfd/export.h"
#include "memfd/sys.h"
#include "memfd/wait.h"

#define SIG_IGN_ ((void (*)(int, void *, void *))1)

/* A request has a number, which its signals carry: so a handler that comes late does not
 * answer the next request. It lies above the address by which the signal is known. */
#define NUMBER_SHIFT 48
#define NUMBER_MAX 0x7fffu
#define ON_BLOCK 0x8000u /* beside the number in an answer: it can't be stopped */

static int signal_used; /* 0: none */
static void (*handler_used)(int, void *, void *);
static uint32_t answers; /* futex: counts them */
static uint32_t request; /* the number of the last one */

COW_EXPORT void
cow__stop_set(int sig, void (*handler)(int, void *, void *))
{
	struct cow__signals old;

	/* A prover has this lock from its first signal to the last answer. */
	cow__park_lock(&old);
	signal_used = sig;
	handler_used = handler;
	if (sig)
		cow__park_stops_begin();
	cow__park_unlock(&old);
}

bool
cow__stop_used(void)
{
	return __atomic_load_n(&signal_used, __ATOMIC_RELAXED) != 0;
}

bool
cow__stop_is_handler(void (*handler)(int, void *, void *))
{
	return signal_used && handler == handler_used;
}

static uintptr_t
signal_value(uint32_t number)
{
	return (uintptr_t)&answers | (uintptr_t)number << NUMBER_SHIFT;
}

COW_EXPORT bool
cow__stop_is_ours(const siginfo_t *info)
{
	const uintptr_t low = ((uintptr_t)1 << NUMBER_SHIFT) - 1;

	return info->si_code == SI_QUEUE &&
	       ((uintptr_t)info->si_value.sival_ptr & low) == signal_value(0);
}

COW_EXPORT void
cow__stop_here(struct cow__park_thread *t, const siginfo_t *info, bool on_block)
{
	static const struct cow__park_call stopped = { .fenced = true };
	uint32_t number = (uint32_t)((uintptr_t)info->si_value.sival_ptr >>
	                             NUMBER_SHIFT);
	bool runs = !t->now, stays = runs && !on_block;

	if (stays)
		cow__park_enter(t, &stopped);
	__atomic_store_n(&t->answered, runs && on_block ? number | ON_BLOCK : number,
	                 __ATOMIC_RELEASE);
	__atomic_fetch_add(&answers, 1, __ATOMIC_SEQ_CST);
	cow__wake(&answers);
	if (stays)
		cow__park_stay(t);
}

/* Does the thread sleep in a system call? The file says "running" otherwise. */
static bool
blocks(uint32_t id)
{
	static const char head[] = "/proc/self/task/", tail[] = "/syscall";
	char path[48], digits[12], first = 'r';
	int n = 0, at = 0, fd;

	for (; id; id /= 10)
		digits[n++] = (char)('0' + id % 10);
	for (const char *p = head; *p; p++)
		path[at++] = *p;
	while (n)
		path[at++] = digits[--n];
	for (const char *p = tail; *p; p++)
		path[at++] = *p;
	path[at] = '\0';
	fd = (int)sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	if (sys_read(fd, &first, 1) != 1)
		first = 'r';
	(void)sys_close(fd);
	return first != 'r';
}

/* Sends the signals. False: a thread can't be stopped. */
static bool
send_signals(struct cow__park_thread *first, uint32_t self)
{
	siginfo_t info = { .si_signo = signal_used, .si_code = SI_QUEUE };

	info.si_pid = (pid_t)sys_getpid();
	info.si_value.sival_ptr = (void *)signal_value(request);
	for (struct cow__park_thread *t = first; t; t = t->next) {
		long r;

		if (!t->in_use || t->id == self ||
		    __atomic_load_n(&t->now, __ATOMIC_ACQUIRE) || blocks(t->id))
			continue;
		if (t->never_stop)
			return false;
		t->asked = request;
		r = SYS4(SYS_rt_tgsigqueueinfo, info.si_pid, t->id, signal_used,
		         &info);
		if (r == -ESRCH)
			t->in_use = false;
		else if (r < 0)
			return false;
	}
	return true;
}

/* What the threads have answered so far. QUIET: all that were asked are parked. */
static enum cow__busy
collect_answers(struct cow__park_thread *first, uint32_t *ret_stopped, bool *ret_all)
{
	enum cow__busy busy = COW__QUIET;

	*ret_stopped = 0;
	*ret_all = true;
	for (struct cow__park_thread *t = first; t; t = t->next) {
		uint32_t answer = __atomic_load_n(&t->answered, __ATOMIC_ACQUIRE);

		if (!t->in_use || t->asked != request)
			continue;
		if (answer == (request | ON_BLOCK))
			busy = COW__BUSY_STACK;
		else if (answer != request)
			*ret_all = false;
		else if (cow__park_counts(t))
			++*ret_stopped;
	}
	return busy;
}

/* Waits until all have answered, or until then. */
static enum cow__busy
wait_for_answers(struct cow__park_thread *first, uint64_t until,
                 uint32_t *ret_stopped)
{
	for (;;) {
		uint32_t seen = __atomic_load_n(&answers, __ATOMIC_SEQ_CST);
		uint64_t now = cow__now();
		enum cow__busy busy;
		bool all;

		busy = collect_answers(first, ret_stopped, &all);
		if (all || busy)
			return busy;
		if (now >= until)
			return COW__BUSY_RUNNING;
		cow__wait(&answers, seen, until - now);
	}
}

/* The kernel drops a signal that becomes ignored, from the queues of all threads and
 * whether it is blocked or not. So none of them is on its way afterwards. */
static void
withdraw(const struct cow__kernel_action *ours)
{
	struct cow__kernel_action ignored = *ours;

	ignored.handler = SIG_IGN_;
	(void)sys_rt_sigaction(signal_used, &ignored, NULL);
	(void)sys_rt_sigaction(signal_used, ours, NULL);
}

enum cow__busy
cow__stop_all(struct cow__park_thread *first, uint32_t self, uint64_t ns,
              uint32_t *ret_stopped)
{
	enum cow__busy busy = COW__BUSY_RUNNING;
	struct cow__kernel_action ours;

	*ret_stopped = 0;
	/* Past libc the program may have set a handler of its own. */
	if (!signal_used || sys_rt_sigaction(signal_used, NULL, &ours) < 0 ||
	    ours.handler != handler_used)
		return COW__BUSY_RUNNING;
	request = request % NUMBER_MAX + 1;
	if (send_signals(first, self))
		busy = wait_for_answers(first, cow__now() + ns, ret_stopped);
	if (busy) {
		*ret_stopped = 0;
		withdraw(&ours);
	}
	return busy;
}
