/* SPDX-License-Identifier: MIT */
/*
 * Healing for a thread of the program, on a stack of the shim's own (core/cow/heal.h)
 *
 * A thread that blocks may be in a signal handler on a stack of 8 KiB, of which the
 * kernel took half, or in a coroutine on a stack as small. The work for the engine needs
 * more. So it has a stack, for one thread at a time. Signals are blocked meanwhile: no
 * handler runs on that stack, and none leaves it by longjmp().
 */
#include "preload/park.h"

#include "core/base/mutex.h"
#include "core/cow/heal.h"
#include "core/fork/fork.h"
#include "core/policy/constants.h"

#include <signal.h>
#include <sys/syscall.h>

#define STACK_BYTES ((size_t)128 << 10)

static char stack[STACK_BYTES] __attribute__((aligned(64)));
static struct cow__mutex lock COW_FORK_DATA; /* of the stack */
static bool more; /* to heal at once: what the last user of the stack left */
static uint64_t look_at;

/* Calls `f` with the stack pointer at `top`. */
__attribute__((visibility("hidden"))) void preload_call_on(void *top, void (*f)(void));

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl preload_call_on\n"
        ".hidden preload_call_on\n"
        ".type preload_call_on, @function\n"
        "preload_call_on:\n"
        "	.cfi_startproc\n"
        "	.byte 0xf3, 0x0f, 0x1e, 0xfa\n" /* endbr64 */
        "	push %rbp\n"
        "	.cfi_def_cfa_offset 16\n"
        "	.cfi_offset rbp, -16\n"
        "	mov %rsp, %rbp\n"
        "	.cfi_def_cfa_register rbp\n"
        "	mov %rdi, %rsp\n"
        "	call *%rsi\n"
        "	mov %rbp, %rsp\n"
        "	pop %rbp\n"
        "	.cfi_def_cfa rsp, 8\n"
        "	ret\n"
        "	.cfi_endproc\n"
        ".size preload_call_on, .-preload_call_on\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl preload_call_on\n"
        ".hidden preload_call_on\n"
        ".type preload_call_on, %function\n"
        "preload_call_on:\n"
        "	.cfi_startproc\n"
        "	hint #34\n" /* bti c */
        "	stp x29, x30, [sp, #-16]!\n"
        "	.cfi_def_cfa_offset 16\n"
        "	.cfi_offset x29, -16\n"
        "	.cfi_offset x30, -8\n"
        "	mov x29, sp\n"
        "	.cfi_def_cfa_register x29\n"
        "	mov sp, x0\n"
        "	blr x1\n"
        "	mov sp, x29\n"
        "	ldp x29, x30, [sp], #16\n"
        "	.cfi_def_cfa sp, 0\n"
        "	ret\n"
        "	.cfi_endproc\n"
        ".size preload_call_on, .-preload_call_on\n");
#endif

/* True: the call left more to do. */
static bool
call(void (*f)(void), bool wait)
{
	struct cow__signals signals;
	bool again;

	(void)cow__signals_block(&signals);
	while (!cow__mutex_try_lock(&lock)) {
		cow__signals_restore(&signals);
		if (!wait)
			return false;
		preload_rest();
		(void)cow__signals_block(&signals);
	}
	more = false;
	preload_call_on(stack + sizeof(stack), f);
	again = more;
	cow__mutex_unlock(&lock);
	cow__signals_restore(&signals);
	return again;
}

/* To block signals takes some calls, so a thread looks at the clock first. */
void
preload_heal_here(void)
{
	uint64_t now = cow__now();

	if (now < __atomic_load_n(&look_at, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&look_at, now + COW__SHIM_LOOK_NS, __ATOMIC_RELAXED);
	(void)call(cow__heal_before_park, false);
}

static void
heal_after_look(void)
{
	more = cow__fork_after_wait(false);
}

static void
heal_after_wait(void)
{
	more = cow__fork_after_wait(true);
}

/* A stack in a block must not be moved: the engine sees that if it works on this stack. A
 * child of vfork() may be killed while it has the lock, which is its parent's. */
void
preload_heal_after_wait(bool blocked)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	if (!cow__heal_needed())
		return;
	/* Signals do not wait for more than a slice. */
	if (here - preload_window_start < preload_window_bytes)
		while (cow__fork_after_wait(blocked))
			;
	else if (!preload_is_vfork_child())
		while (call(blocked ? heal_after_wait : heal_after_look, true))
			;
}

COW_FORK_CODE void
preload_heal_child(void)
{
	lock = (struct cow__mutex){ 0 };
}
