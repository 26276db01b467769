/* SPDX-License-Identifier: MIT */
/*
 * Parking: the slow part (see the header)
 */
#include "preload/park.h"
#include "preload/next.h"

#include "core/fork/fork.h"
#include "core/policy/constants.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Thread_local struct cow__park_thread *preload_thread
        __attribute__((tls_model("initial-exec")));
static pid_t process COW_FORK_DATA; /* vfork's child has another number */

bool
preload_is_vfork_child(void)
{
	return process && process != preload_pid();
}

void
preload_sandbox_began(void)
{
	__atomic_store_n(&cow__sandboxed, 1, __ATOMIC_RELAXED);
}

static struct cow__park_thread *
thread_new(void)
{
	struct cow__park_thread *t = cow__park_register((uintptr_t)pthread_self());
	stack_t old;

	if (!t)
		return NULL;
	if (cow__ask(SYS_sigaltstack, 0, (long)&old, 0, 0, 0, 0) == 0 &&
	    !(old.ss_flags & SS_DISABLE))
		t->alternate = (struct cow__park_range){
			(uintptr_t)old.ss_sp, (uintptr_t)old.ss_sp + old.ss_size
		};
	/* A thread with its data in a block is never found there: it can't park, and the
	 * fast way does not look. */
	if (!preload_ours((void *)t->self))
		preload_thread = t;
	return t;
}

/* Signals may interrupt this, and their handlers may park. */
struct cow__park_thread *
preload_park_slowly(struct cow__park_call *call)
{
	struct cow__park_thread *t = preload_thread;
	uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
	int saved = errno;
	uint32_t word;

	if (preload_sandboxed())
		return NULL;
	if (!t || t->in_vfork) {
		if (preload_is_vfork_child())
			return NULL;
		t = t ? t : thread_new();
		errno = saved;
		if (!t)
			return NULL;
		t->in_vfork = false;
	}
	word = __atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE);
	/* libc writes this stack during the call, and errno; and the kernel its rseq area. */
	if (call->n > COW__PARK_RANGES ||
	    stack - preload_window_start < preload_window_bytes ||
	    preload_ours((void *)t->self)) {
		if (!(word & COW__PARK_STOPS))
			return NULL;
		call->fenced = true;
		cow__park_carefully(t, (uintptr_t)&cow__park_unknown | 1);
		errno = saved;
		return t;
	}
	if (word & COW__PARK_CARE) {
		preload_heal_here();
		errno = saved;
	}
	call->fenced = (word & COW__PARK_FENCES) != 0;
	if (word & COW__PARK_STOPS) {
		cow__park_carefully(t, (uintptr_t)call | call->fenced);
		errno = saved;
	} else {
		cow__park_enter(t, call);
	}
	return t;
}

void
preload_park_note(void)
{
	int saved = errno;

	if (!preload_thread && !preload_sandboxed() && !preload_is_vfork_child())
		(void)thread_new();
	errno = saved;
}

void
preload_rest(void)
{
	const struct timespec t = { .tv_nsec = COW__SHIM_REST_NS };

	(void)cow__ask(SYS_nanosleep, (long)&t, 0, 0, 0, 0, 0);
}

COW_FORK_CODE void
preload_park_child(void)
{
	if (preload_sandboxed())
		return;
	process = preload_pid();
	preload_heal_child();
	cow__park_child(preload_thread);
}

/* A handler may have interrupted a call that is parked: that one stays so. */
static struct cow__park_thread *
record(void)
{
	struct cow__park_thread *t = preload_thread;
	uintptr_t stack = (uintptr_t)__builtin_frame_address(0);

	return !t || t->now || t->in_vfork || preload_sandboxed() ||
	                       stack - preload_window_start < preload_window_bytes
	               ? NULL
	               : t;
}

void
preload_park_init(void)
{
	process = preload_pid();
	cow__park_records(record);
	preload_signals_init();
	preload_threads_init();
	preload_blocking_init();
	preload_raw_init();
	preload_unknown_init();
}

void
preload_vfork_mark(void)
{
	preload_park_note();
	if (preload_thread)
		preload_thread->in_vfork = true;
}

/*
 * vfork() must not return before its child has ended: the child would use a stack
 * frame that is gone. So this one marks the record, and jumps to libc's.
 */
__attribute__((used)) void *preload_vfork_begins(void);

void *
preload_vfork_begins(void)
{
	static void *next;

	if (!next)
		next = preload_next_symbol("vfork");
	preload_vfork_mark();
	return next;
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        "	.byte 0xf3, 0x0f, 0x1e, 0xfa\n" /* endbr64 */
        "	sub $8, %rsp\n"
        "	call preload_vfork_begins\n"
        "	add $8, %rsp\n"
        "	jmp *%rax\n"
        ".size vfork, .-vfork\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, %function\n"
        "vfork:\n"
        "	hint #34\n" /* bti c */
        "	stp x29, x30, [sp, #-16]!\n"
        "	bl preload_vfork_begins\n"
        "	mov x16, x0\n"
        "	ldp x29, x30, [sp], #16\n"
        "	br x16\n"
        ".size vfork, .-vfork\n");
#endif
