/* SPDX-License-Identifier: MIT */
/*
 * The one way into the kernel
 *
 * Every call that cowshed makes into the kernel passes through this one function.
 * It is alone in its file, so that a test can link another one in its place,
 * before the library. The test's function can make the n-th call fail with any
 * error: see tests/support/fault/.
 *
 * It enters the kernel directly instead of through libc, for three reasons. The
 * result is -errno without a detour over the thread-local errno, so it works on
 * the helper thread, which has no thread-local storage. Other preloaded libraries
 * interpose libc's mmap and close, and call malloc there, which may be the
 * engine. And tools that replace libc's calls do not see the engine's mappings,
 * which they could only misunderstand; with MODE=tsan there is one exception, below.
 */
#include "memfd/syscall.h"
#include "memfd/forked.h"

#if defined(__x86_64__)

COW_FORK_CODE static long
call_kernel(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
	                 : "=a"(ret)
	                 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
	                   "r"(r9)
	                 : "rcx", "r11", "memory");
	return ret;
}

#elif defined(__aarch64__)

COW_FORK_CODE static long
call_kernel(long nr, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
	                 : "+r"(x0)
	                 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
	                 : "memory");
	return x0;
}

#else
#error "cowshed knows x86-64 and aarch64"
#endif

#if defined(__SANITIZE_THREAD__)

/* ThreadSanitizer notes for each address which threads used it. It has to forget that when memory
 * is unmapped. Else memory that another thread maps at the same address looks like a race. Its own
 * munmap(), which replaces libc's, forgets and makes the call. */
static long
unmap_seen(long addr, long bytes)
{
	int old = errno;
	long r = munmap((void *)addr, (size_t)bytes) == 0 ? 0 : -errno;

	errno = old;
	return r;
}

#endif

COW_FORK_CODE long
cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__SANITIZE_THREAD__)
	if (nr == SYS_munmap)
		return unmap_seen(a, b);
#endif
	return call_kernel(nr, a, b, c, d, e, f);
}
