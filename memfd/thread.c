/* SPDX-License-Identifier: MIT */
/*
 * A thread that libc does not know: see the header.
 *
 *      memory  +-----------------+
 *              | stack  ^        |  80 KiB
 *              +-----------------+
 *              | blank TLS       |  16 KiB; the thread pointer points at its
 *              |      [self]     |  middle, where x86-64 wants a self pointer
 *              +-----------------+
 */
#include "memfd/thread.h"
#include "memfd/gate.h"
#include "memfd/signals.h"
#include "memfd/sys.h"
#include "memfd/wait.h"

#include <linux/sched.h>

#define STACK_BYTES ((size_t)80 << 10)
#define TLS_BYTES ((size_t)16 << 10)
#define LEAVES_NS 100000000u

/* clone() in the child runs on a new, empty stack, so it can't return; main is
 * called right there. */
static long
clone_bare(unsigned long flags, void *stack, uint32_t *tid, void *tls,
           void (*main)(void))
{
	long ret;
#if defined(__x86_64__)
	register long r10 __asm__("r10") = (long)tid;
	register long r8 __asm__("r8") = (long)tls;
	register long r9 __asm__("r9") = (long)main;

	__asm__ volatile("syscall\n\t"
	                 "test %%rax, %%rax\n\t"
	                 "jnz 1f\n\t"
	                 "xor %%ebp, %%ebp\n\t"
	                 "call *%%r9\n\t"
	                 "xor %%edi, %%edi\n\t"
	                 "mov %[exit], %%eax\n\t"
	                 "syscall\n"
	                 "1:"
	                 : "=a"(ret)
	                 : "a"((long)SYS_clone), "D"(flags), "S"(stack),
	                   "d"(tid), "r"(r10), "r"(r8), "r"(r9),
	                   [exit] "i"(SYS_exit)
	                 : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_clone;
	register long x0 __asm__("x0") = (long)flags;
	register long x1 __asm__("x1") = (long)stack;
	register long x2 __asm__("x2") = (long)tid;
	register long x3 __asm__("x3") = (long)tls;
	register long x4 __asm__("x4") = (long)tid;
	register long x9 __asm__("x9") = (long)main;

	__asm__ volatile("svc 0\n\t"
	                 "cbnz x0, 1f\n\t"
	                 "mov x29, xzr\n\t"
	                 "blr x9\n\t"
	                 "mov x0, xzr\n\t"
	                 "mov x8, %[exit]\n\t"
	                 "svc 0\n"
	                 "1:"
	                 : "+r"(x0)
	                 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x9),
	                   [exit] "i"(SYS_exit)
	                 : "memory");
	ret = x0;
#endif
	return ret;
}

/* Nothing of a thread's is asked for, so the words are not used. */
long
cow__thread_clone(unsigned long flags, void *stack, void (*main)(void))
{
	return clone_bare(flags, stack, NULL, NULL, main);
}

#if defined(COW_SANITIZED)

int
cow__thread_start(struct cow__thread *thread, void (*main)(void))
{
	(void)thread;
	(void)main;
	return -ENOSYS;
}

#else

int
cow__thread_start(struct cow__thread *thread, void (*main)(void))
{
	const unsigned long flags =
	        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
	        CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
	        CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	struct cow__signals signals;
	void **tls;
	long r;

	if (cow__gate_state && !cow__gate_lets(SYS_clone, (long)flags, 0, 0, 0))
		return -EPERM;
	if (!thread->memory) {
		r = sys_mmap(NULL, STACK_BYTES + TLS_BYTES, PROT_READ | PROT_WRITE,
		             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (r < 0)
			return (int)r;
		thread->memory = (void *)r;
	}
	tls = (void **)((char *)thread->memory + STACK_BYTES + TLS_BYTES / 2);
	*tls = tls;
	(void)cow__now(); /* finds the clock, which the thread could not */
	if (!cow__signals_block(&signals))
		return -EPERM;
	cow__signals_thread_starts();
	r = clone_bare(flags, (char *)thread->memory + STACK_BYTES - 64,
	               &thread->tid, tls, main);
	if (r < 0)
		cow__signals_thread_fails();
	cow__signals_restore(&signals);
	if (r > 0)
		__atomic_store_n(&thread->last, (uint32_t)r, __ATOMIC_RELAXED);
	return r < 0 ? (int)r : 0;
}

#endif

/* By the stack: it has no signal stack. */
bool
cow__thread_is_mine(const struct cow__thread *thread)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	return here - (uintptr_t)thread->memory < STACK_BYTES;
}

void
cow__thread_not_inherited(struct cow__thread *thread)
{
	if (thread->memory)
		(void)sys_madvise(thread->memory, STACK_BYTES + TLS_BYTES,
		                  MADV_DONTFORK);
}

void
cow__thread_join(struct cow__thread *thread)
{
	bool waited = false;
	uint32_t tid;

	/* The kernel's wake-up at thread exit is a shared one, and wakes one
	 * waiting thread. That one wakes the others. */
	while ((tid = __atomic_load_n(&thread->tid, __ATOMIC_ACQUIRE)) != 0) {
		waited = true;
		(void)sys_futex(&thread->tid, FUTEX_WAIT, tid, NULL);
	}
	if (waited)
		(void)sys_futex(&thread->tid, FUTEX_WAKE, INT32_MAX, NULL);
}

/* The word is cleared a little before the thread leaves its group. Several threads may
 * wait for that at once. */
void
cow__thread_left(struct cow__thread *thread)
{
	uint64_t until = cow__now() + LEAVES_NS;
	uint32_t last = __atomic_load_n(&thread->last, __ATOMIC_RELAXED);

	if (!last)
		return;
	while (cow__now() < until &&
	       SYS3(SYS_tgkill, sys_getpid(), last, 0) == 0)
		cow__yield();
	/* Not if another thread was started meanwhile. */
	(void)__atomic_compare_exchange_n(&thread->last, &last, 0, false,
	                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

uint64_t
cow__thread_count(void)
{
	struct stat s;

	if (sys_fstatat(AT_FDCWD, "/proc/self/task", &s, 0) < 0 ||
	    s.st_nlink < 3)
		return 0;
	return (uint64_t)s.st_nlink - 2;
}

/* Of two threads one is ours if it still is there after they were counted. Otherwise it has
 * left, perhaps since the first look. */
bool
cow__thread_alone(const struct cow__thread *ours)
{
	uint32_t last = ours ? __atomic_load_n(&ours->last, __ATOMIC_RELAXED) : 0;
	uint64_t threads;

	if (last && last == (uint32_t)sys_gettid())
		return false;
	if (sys_unshare(CLONE_VM) == 0)
		return true;
	if (!last)
		return false;
	threads = cow__thread_count();
	return (threads == 2 && SYS3(SYS_tgkill, sys_getpid(), last, 0) == 0) ||
	       sys_unshare(CLONE_VM) == 0;
}
