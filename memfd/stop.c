/* SPDX-License-Identifier: MIT */
/*
 * Stops: see the header.
 */
#include "memfd/stop.h"
#include "memfd/export.h"
#include "memfd/sys.h"
#include "memfd/wait.h"

#define SIG_IGN_ ((void (*)(int, void *, void *))1)

enum { NOT_ASKED, SENT, ANSWERED, ON_BLOCK };

static int signal_used; /* 0: none */
static void (*handler_used)(int, void *, void *);
static uint32_t answers; /* futex: counts them */

COW_EXPORT void
cow__stop_set(int sig, void (*handler)(int, void *, void *))
{
	uint64_t old;

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

COW_EXPORT bool
cow__stop_is_ours(const siginfo_t *info)
{
	return info->si_code == SI_QUEUE &&
	       info->si_value.sival_ptr == (void *)&answers;
}

COW_EXPORT void
cow__stop_here(struct cow__park_thread *t, bool on_block)
{
	static struct cow__park_call stopped = { .fenced = true };
	bool runs = !t->now, stays = runs && !on_block;

	if (stays)
		cow__park_enter(t, &stopped);
	__atomic_store_n(&t->asked, runs && on_block ? ON_BLOCK : ANSWERED,
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

/* Sends the signals. 1: a thread can't be stopped. */
static int
ask(struct cow__park_thread *first, uint32_t self, uint32_t *ret_asked)
{
	siginfo_t info = { .si_signo = signal_used, .si_code = SI_QUEUE };

	info.si_pid = (pid_t)sys_getpid();
	info.si_value.sival_ptr = &answers;
	*ret_asked = 0;
	for (struct cow__park_thread *t = first; t; t = t->next) {
		long r;

		t->asked = NOT_ASKED;
		if (!t->in_use || t->id == self ||
		    __atomic_load_n(&t->now, __ATOMIC_ACQUIRE) || blocks(t->id))
			continue;
		if (t->never_stop)
			return 1;
		__atomic_store_n(&t->asked, SENT, __ATOMIC_RELEASE);
		r = SYS4(SYS_rt_tgsigqueueinfo, info.si_pid, t->id, signal_used,
		         &info);
		if (r == -ESRCH) {
			t->in_use = false;
			t->asked = NOT_ASKED;
			continue;
		}
		++*ret_asked;
		if (r < 0)
			return 1;
	}
	return 0;
}

/* Waits until all have answered, or until then. */
static bool
wait_for_answers(uint32_t before, uint32_t asked, uint64_t until)
{
	for (;;) {
		uint32_t now = __atomic_load_n(&answers, __ATOMIC_SEQ_CST);
		uint64_t time = cow__now();

		if (now - before >= asked)
			return true;
		if (time >= until)
			return false;
		cow__wait(&answers, now, until - time);
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

/* After the answers. */
static enum cow__busy
look_at_answers(struct cow__park_thread *first, uint32_t *stopped)
{
	for (struct cow__park_thread *t = first; t; t = t->next) {
		uint32_t asked = __atomic_load_n(&t->asked, __ATOMIC_ACQUIRE);

		if (!t->in_use || asked == NOT_ASKED)
			continue;
		if (asked == ON_BLOCK)
			return COW__BUSY_STACK;
		if (asked != ANSWERED ||
		    !__atomic_load_n(&t->now, __ATOMIC_ACQUIRE))
			return COW__BUSY_RUNNING;
		if (cow__park_counts(t))
			++*stopped;
	}
	return COW__QUIET;
}

enum cow__busy
cow__stop_all(struct cow__park_thread *first, uint32_t self, uint64_t ns,
              uint32_t *ret_stopped)
{
	uint32_t before = __atomic_load_n(&answers, __ATOMIC_SEQ_CST), asked;
	struct cow__kernel_action ours;

	*ret_stopped = 0;
	/* Past libc the program may have set a handler of its own. */
	if (!signal_used || sys_rt_sigaction(signal_used, NULL, &ours) < 0 ||
	    ours.handler != handler_used)
		return COW__BUSY_RUNNING;
	if (ask(first, self, &asked) ||
	    !wait_for_answers(before, asked, cow__now() + ns)) {
		withdraw(&ours);
		return COW__BUSY_RUNNING;
	}
	return look_at_answers(first, ret_stopped);
}
