/* SPDX-License-Identifier: MIT */
/*
 * Calls on pages of ours without a name in libc, or by number
 *
 *   syscall            by number: calls that have a name here; NUMA policies,
 *                      which libnuma sets in this way; calls that give up
 *                      privileges (preload/privileges.c); forks; areas that
 *                      the kernel writes (rseq)
 *   ioctl              registers memory with a userfaultfd; also by number
 *   vmsplice           lends pages to a pipe
 *   process_madvise    may advise the caller itself
 *   remap_file_pages   would work on a file
 *
 * All other calls go to the kernel after a few comparisons.
 */
#include "preload/next.h"
#include "preload/park.h"

#include "core/program/advise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/rseq.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define EXPORT __attribute__((visibility("default")))

/* Reads six arguments even if the caller gave fewer, as libc does. */
#define ARGUMENTS(last)                                                        \
	long a, b, c, d, e, f;                                                 \
	va_list ap;                                                            \
	va_start(ap, last);                                                    \
	a = va_arg(ap, long);                                                  \
	b = va_arg(ap, long);                                                  \
	c = va_arg(ap, long);                                                  \
	d = va_arg(ap, long);                                                  \
	e = va_arg(ap, long);                                                  \
	f = va_arg(ap, long);                                                  \
	va_end(ap)

static int (*next_ioctl)(int, unsigned long, ...); /* NULL before the shim starts */

static inline long
kernel(long number, long a, long b, long c, long d, long e, long f)
{
	long r = cow__syscall(number, a, b, c, d, e, f);

	if (r < 0 && r > -4096) {
		errno = (int)-r;
		return -1;
	}
	return r;
}

long
preload_kernel(long number, ...)
{
	ARGUMENTS(number);
	return kernel(number, a, b, c, d, e, f);
}

/* rt_sigprocmask() with a bad `how`: the kernel reads the mask first, and changes
 * nothing. NULL would mean no mask. */
bool
preload_is_readable(const void *p, size_t bytes)
{
	uintptr_t at = (uintptr_t)p, last = at + bytes - sizeof(uint64_t);

	if (bytes == 0 || preload_sandboxed()) /* a filter may forbid to ask */
		return true;
	/* In each page, and at the end. */
	while (cow__ask(SYS_rt_sigprocmask, -1, (long)at, 0, sizeof(uint64_t),
	                    0, 0) == -EINVAL) {
		if (at == last)
			return true;
		at = last - at > cow__page ? at + cow__page : last;
	}
	return false;
}

/* Not a list that is too long: the kernel refuses it. */
static bool
are_readable(const struct iovec *parts, size_t n)
{
	return parts && n <= IOV_MAX &&
	       preload_is_readable(parts, n * sizeof(*parts));
}

/* Does the call make a child with its own memory, on a copy of this stack? */
static bool
is_fork(long number, long a, long b)
{
	switch (number) {
#ifdef SYS_fork
	case SYS_fork:
		return true;
#endif
	case SYS_clone:
		return !(a & CLONE_VM) && !b;
#ifdef SYS_clone3
	case SYS_clone3: {
		const struct clone_args *how = (const void *)a;

		return (size_t)b >= CLONE_ARGS_SIZE_VER0 &&
		       preload_is_readable(how, CLONE_ARGS_SIZE_VER0) &&
		       !(how->flags & CLONE_VM) && !how->stack;
	}
#endif
	default:
		return false;
	}
}

/* Where such a fork writes the child's number in the child's memory, or NULL. */
static void *
child_number(long number, long a, long d, long e)
{
#ifdef SYS_clone3
	if (number == SYS_clone3) {
		const struct clone_args *how = (const void *)a;

		return how->flags & CLONE_CHILD_SETTID ? (void *)how->child_tid : NULL;
	}
#endif
	if (number != SYS_clone || !(a & CLONE_CHILD_SETTID))
		return NULL;
#ifdef __x86_64__
	(void)e;
	return (void *)d;
#else
	(void)d;
	return (void *)e;
#endif
}

static long
fork_flags(long number, long a)
{
	if (number == SYS_clone)
		return a;
#ifdef SYS_clone3
	if (number == SYS_clone3)
		return (long)((const struct clone_args *)a)->flags;
#endif
	return 0;
}

static long
kernel_fork(long number, long a, long b, long c, long d, long e, long f)
{
	void *there = child_number(number, a, d, e);
	long flags = fork_flags(number, a);
	enum preload_fork how = preload_fork_begin();
	long pid = kernel(number, a, b, c, d, e, f);

	if (pid == 0)
		preload_border_early(flags);
	if (how != PRELOAD_FORK_PREPARED) {
		if (pid == 0)
			preload_fork_alone(how, flags, there);
		return pid;
	}
	pid = preload_fork_end((pid_t)pid);
	if (pid == 0) {
		preload_border_born(flags);
		preload_child_number(there);
	}
	return pid;
}

/* The program places memory on NUMA nodes: the engine is told. */
static void
note_policy(long number, long a, long b)
{
	if (number == SYS_mbind && preload_ours((void *)a))
		cow__bound((uintptr_t)a, (size_t)b);
	if (number == SYS_set_mempolicy && a != 0) /* MPOL_DEFAULT */
		cow__placed();
}

/* The program handles faults in a registered range. So the range must stay the mapping
 * that was registered, and behave as the anonymous memory that it seems. */
static void
note_register(unsigned long request, long a)
{
	const struct uffdio_register *r = (const void *)a;

	if (request == UFFDIO_REGISTER && preload_is_readable(r, sizeof(*r)) &&
	    r->range.len && preload_ours((void *)r->range.start))
		(void)cow__own(r->range.start, r->range.len,
		               r->mode == UFFDIO_REGISTER_MODE_MISSING ? COW__OWN_FOR_MISSING
		                                                       : COW__OWN_TO_WATCH);
}

/* The kernel writes the area of restartable sequences whenever the thread begins to run. */
#ifdef SYS_rseq
static long
kernel_sequences(long a, long b, long c, long d)
{
	struct cow__park_range old = { 0, 0 }, *noted = NULL;
	long r;

	if (preload_ours((void *)a) && !preload_is_vfork_child()) {
		preload_park_note();
		if (preload_thread)
			noted = &preload_thread->sequences;
		else /* no memory for a note */
			cow__park_shared();
	}
	if (noted) {
		old = *noted;
		*noted = preload_range((uintptr_t)a, (size_t)b);
	}
	r = kernel(SYS_rseq, a, b, c, d, 0, 0);
	if (noted && (r < 0 || (c & RSEQ_FLAG_UNREGISTER)))
		*noted = r < 0 ? old : (struct cow__park_range){ 0, 0 };
	return r;
}
#endif

/* By the function of that name, if the shim has one. */
static long
by_name(long number, long a, long b, long c, long d, long e, long f)
{
	switch (number) {
	case SYS_mmap:
		return (long)preload_mmap((void *)a, (size_t)b, (int)c, (int)d,
		                          (int)e, f);
	case SYS_munmap:
		return preload_munmap((void *)a, (size_t)b);
	case SYS_mremap:
		return (long)preload_mremap((void *)a, (size_t)b, (size_t)c,
		                            (int)d, e);
	case SYS_mprotect:
		return preload_mprotect((void *)a, (size_t)b, (int)c);
	case SYS_pkey_mprotect:
		return preload_pkey_mprotect((void *)a, (size_t)b, (int)c,
		                             (int)d);
	case SYS_madvise:
		return preload_madvise((void *)a, (size_t)b, (int)c);
	case SYS_process_madvise:
		return process_madvise((int)a, (void *)b, (size_t)c, (int)d,
		                       (unsigned)e);
	case SYS_mlock:
		return preload_mlock((void *)a, (size_t)b);
	case SYS_mlock2:
		return preload_mlock2((void *)a, (size_t)b, (unsigned)c);
	case SYS_munlock:
		return preload_munlock((void *)a, (size_t)b);
	case SYS_mlockall:
		return preload_mlockall((int)a);
	case SYS_munlockall:
		return preload_munlockall();
#ifdef SYS_rseq
	case SYS_rseq:
		return kernel_sequences(a, b, c, d);
#endif
	case SYS_vmsplice:
		return vmsplice((int)a, (void *)b, (size_t)c, (unsigned)d);
	case SYS_remap_file_pages:
		return remap_file_pages((void *)a, (size_t)b, (int)c, (size_t)d,
		                        (int)e);
	default:
		return kernel(number, a, b, c, d, e, f);
	}
}

/* A futex wait by number: a safe point (quiet/park.h). The kernel writes nothing. */
static long
kernel_wait(long number, long a, long b, long c, long d, long e, long f)
{
	struct cow__park_call call;
	struct cow__park_thread *t;
	long r;

	preload_call(&call);
	t = preload_park(&call);
	r = cow__syscall(number, a, b, c, d, e, f);
	preload_unpark(t, &call);
	if (r < 0 && r > -4096) {
		errno = (int)-r;
		return -1;
	}
	return r;
}

static bool
is_wait(long number, long b)
{
	long op = b & FUTEX_CMD_MASK;

	return number == SYS_futex &&
	       (op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET);
}

/* A stop must not meet it (preload/unknown.c). */
static long
kernel_exec(long number, long a, long b, long c, long d, long e)
{
	struct cow__park_call call = PRELOAD_UNKNOWN;
	struct cow__park_thread *t = preload_unstoppable(&call);
	long r = kernel(number, a, b, c, d, e, 0);

	preload_unpark(t, &call);
	return r;
}

EXPORT long
syscall(long number, ...)
{
	ARGUMENTS(number);
	if (is_wait(number, b))
		return kernel_wait(number, a, b, c, d, e, f);
	if (preload_is_for_one(number, a))
		return preload_kernel_alone(number, a, b, c, d, e, f);
	if (number == SYS_prctl)
		return preload_prctl(a, b, c, d, e);
	if (is_fork(number, a, b))
		return kernel_fork(number, a, b, c, d, e, f);
	if (number == SYS_execve || number == SYS_execveat)
		return kernel_exec(number, a, b, c, d, e);
	note_policy(number, a, b);
	if (number == SYS_ioctl)
		note_register((unsigned long)b, c);
	return by_name(number, a, b, c, d, e, f);
}

/* Another preloaded library may have one of its own. */
EXPORT int
ioctl(int fd, unsigned long request, ...)
{
	ARGUMENTS(request);
	(void)b, (void)c, (void)d, (void)e, (void)f;
	note_register(request, a);
	if (next_ioctl)
		return next_ioctl(fd, request, a);
	return (int)kernel(SYS_ioctl, fd, (long)request, a, 0, 0, 0);
}

void
preload_raw_init(void)
{
	void *p = preload_next_symbol("ioctl");

	memcpy(&next_ioctl, &p, sizeof(p));
}

/* The pipe keeps these pages even if the block is freed. The engine must not write
 * back to them, nor use them for the next block. */
EXPORT ssize_t
vmsplice(int fd, const struct iovec *parts, size_t n, unsigned flags)
{
	size_t known = are_readable(parts, n) ? n : 0;

	for (size_t i = 0; i < known; i++) {
		uintptr_t start = (uintptr_t)parts[i].iov_base;
		size_t bytes = parts[i].iov_len, skip = start % cow__page;

		if (!bytes || !preload_ours(parts[i].iov_base))
			continue;
		(void)cow__lend(start - skip, bytes + skip);
	}
	return kernel(SYS_vmsplice, fd, (long)parts, (long)n, flags, 0, 0);
}

/* The kernel allows a process all advice for itself, and four kinds for others, which change no
 * byte. A call with nothing to advise tells whether it allows this one. */
EXPORT ssize_t
process_madvise(int pidfd, const struct iovec *parts, size_t n, int advice,
                unsigned flags)
{
	static const struct iovec nothing;
	size_t known = are_readable(parts, n) ? n : 0, i;
	ssize_t sum = 0;

	for (i = 0; i < known && !preload_ours(parts[i].iov_base); i++)
		;
	if (i == known || advice == MADV_COLD || advice == MADV_PAGEOUT ||
	    advice == MADV_WILLNEED || advice == MADV_COLLAPSE ||
	    kernel(SYS_process_madvise, pidfd, (long)&nothing, 1, advice, flags,
	           0) < 0)
		return kernel(SYS_process_madvise, pidfd, (long)parts, (long)n,
		              advice, flags, 0);
	for (i = 0; i < n; sum += (ssize_t)parts[i++].iov_len)
		if (preload_madvise(parts[i].iov_base, parts[i].iov_len,
		                    advice) < 0)
			return sum ? sum : -1;
	return sum;
}

/* The call is for shared file mappings, and the program's memory is private. */
EXPORT int
remap_file_pages(void *addr, size_t bytes, int prot, size_t offset, int flags)
{
	if (preload_ours(addr)) {
		errno = EINVAL;
		return -1;
	}
	return (int)kernel(SYS_remap_file_pages, (long)addr, (long)bytes, prot,
	                   (long)offset, flags, 0);
}
