/* SPDX-License-Identifier: MIT */
/*
 * Calls for a process with one thread
 *
 *   unshare, setns          some forms of these demand one thread
 *   setuid and its like,    the kernel keeps privileges for each thread. libc changes the
 *   prctl, capset           threads that it knows; the library's threads are unknown to it,
 *                           and would keep privileges that the program gives up
 *   chroot, namespaces      change what the process can reach
 *   by number               seccomp, landlock, pivot_root and lsm_set_self_attr have no other name
 *
 * Many of them are a border to relatives of a fork: preload/border.c makes it before the call.
 *
 * So the helper and the threads that copy end before the call. Threads that are made
 * later inherit the privileges of their maker. Signal handlers may make many of these
 * calls. setfsuid() and setfsgid() end none, because they give up nothing: servers change the user
 * of files for each request, and change it back.
 *
 * Most of these calls find no thread of the library and no relative, and then cost what they cost
 * without the library (nothing_to_end()).
 *
 * A filter of system calls may kill for calls that the program does not make itself. Before it
 * is set, the engine retires (core/fork/retire.h), and switches safe points off (quiet/park.h).
 */
#include "preload/next.h"
#include "preload/park.h"

#include "core/fork/border.h"

#include <errno.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef PR_SET_MEMORY_MERGE /* Linux 6.4 */
#define PR_SET_MEMORY_MERGE 67
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_lsm_set_self_attr /* Linux 6.8 */
#define SYS_lsm_set_self_attr 460
#endif
#define EXPORT __attribute__((visibility("default")))

bool
preload_is_for_one(long number, long option)
{
	switch (number) {
	case SYS_unshare:
	case SYS_setns:
	case SYS_setuid:
	case SYS_setgid:
	case SYS_setreuid:
	case SYS_setregid:
	case SYS_setresuid:
	case SYS_setresgid:
	case SYS_setgroups:
	case SYS_setfsuid:
	case SYS_setfsgid:
	case SYS_capset:
	case SYS_seccomp:
	case SYS_landlock_restrict_self:
	case SYS_chroot:
	case SYS_pivot_root:
	case SYS_lsm_set_self_attr:
		return true;
	case SYS_prctl:
		return option == PR_SET_NO_NEW_PRIVS ||
		       option == PR_SET_SECCOMP ||
		       option == PR_SET_SECUREBITS ||
		       option == PR_CAPBSET_DROP ||
		       option == PR_CAP_AMBIENT || option == PR_SET_DUMPABLE;
	default:
		return false;
	}
}

/* Is the call about to set a filter? Programs ask by one without a filter (EFAULT) which forms the
 * kernel knows. A child of vfork() gets a filter of its own: its parent has the same memory, and
 * goes on as before. */
static bool
makes_sandbox(long number, long a, long b, long c)
{
	bool makes = false;

	if (number == SYS_prctl && a == PR_SET_SECCOMP)
		makes = b == SECCOMP_MODE_STRICT || (b == SECCOMP_MODE_FILTER && c);
	else if (number == SYS_seccomp)
		makes = a == SECCOMP_SET_MODE_STRICT || (a == SECCOMP_SET_MODE_FILTER && c);
	return makes && !preload_is_vfork_child();
}

/* For all threads, it tells by a number above 0 which thread it could not be set for. */
static bool
was_refused(long number, long a, long b, long r)
{
	return r < 0 || (r > 0 && number == SYS_seccomp && a == SECCOMP_SET_MODE_FILTER &&
	                 (b & SECCOMP_FILTER_FLAG_TSYNC) &&
	                 !(b & SECCOMP_FILTER_FLAG_NEW_LISTENER));
}

/* The filter may be for the calling thread alone. But the memory is that of all threads. */
static long
kernel_sandbox(long number, long a, long b, long c, long d, long e)
{
	long r;
	int error;

	preload_report();
	error = -preload_retire();
	r = error ? -1 : preload_kernel(number, a, b, c, d, e, 0);
	if (error || was_refused(number, a, b, r)) {
		if (!error) {
			error = errno;
			preload_retire_undo();
		}
		preload_report_begin();
		errno = error;
	}
	return r;
}

/* Neither threads of the library, nor relatives to whom the call could make a border. */
static bool
nothing_to_end(void)
{
	if (preload_sandboxed())
		return true;
	return cow__threads_none() && preload_border_none();
}

/* A signal handler may have started a thread since, which has what the process has given up. Or it
 * forked a child, to which there is no border yet. */
static void
nothing_began(void)
{
	if (preload_sandboxed())
		return;
	if (!cow__threads_none() && cow__threads_suspend())
		cow__helper_resume();
	if (cow__border_due())
		(void)cow__border_make(cow__process_opens_mapped(), true);
}

/* The calling thread's way through a call that may be a border. */
struct call {
	bool suspended, sandbox;
	struct preload_crossing crossing;
};

static int
begin_call(struct call *call, bool whole, long number, long a, long b, long c)
{
	call->suspended = cow__threads_suspend();
	return preload_border(whole, number, a, b, c, &call->crossing);
}

/* A filter that was set just now may end the process for any call of the kernel. */
static void
end(const struct call *call)
{
	preload_border_over(&call->crossing, call->sandbox);
	if (call->suspended)
		cow__helper_resume();
}

/* These may change what later children have, and not the process itself. */
static bool
changes_children(long number)
{
	return number == SYS_unshare || number == SYS_setns;
}

static bool
is_of_files(long number)
{
	return number == SYS_setfsuid || number == SYS_setfsgid;
}

long
preload_kernel_alone(long number, long a, long b, long c, long d, long e, long f)
{
	struct call call = { .suspended = false };
	uint32_t relatives;
	long r;

	/* It has nothing more to give up, and may make no other call. */
	if (preload_sandboxed())
		return preload_kernel(number, a, b, c, d, e, f);
	call.sandbox = makes_sandbox(number, a, b, c);

	relatives = cow__border_relatives(); /* before the question: a handler may fork after it */
	if (is_of_files(number) && !preload_border_by_file_user()) {
		r = preload_kernel(number, a);
		/* Has a handler forked since? */
		if (relatives != cow__border_relatives() && preload_border_by_file_user())
			(void)cow__border_make(true, true);
		return r;
	}
	if (!call.sandbox && !changes_children(number) && nothing_to_end()) {
		r = preload_kernel(number, a, b, c, d, e, f);
		nothing_began();
		return r;
	}
	r = begin_call(&call, false, number, a, b, c);
	if (r < 0) {
		end(&call);
		/* These tell by the old user that nothing changed. */
		return is_of_files(number) ? preload_kernel(number, -1L) : r;
	}
	r = call.sandbox ? kernel_sandbox(number, a, b, c, d, e)
	                 : preload_kernel(number, a, b, c, d, e, f);
	end(&call);
	return r;
}

/* For calls that libc only passes on to the kernel. */
static int
kernel_alone(long number, long a, long b)
{
	return (int)preload_kernel_alone(number, a, b, 0, 0, 0, 0);
}

EXPORT int
unshare(int flags)
{
	return kernel_alone(SYS_unshare, flags, 0);
}

EXPORT int
setns(int fd, int type)
{
	return kernel_alone(SYS_setns, fd, type);
}

EXPORT int
chroot(const char *path)
{
	return kernel_alone(SYS_chroot, (long)path, 0);
}

EXPORT int
setfsuid(uid_t user)
{
	return kernel_alone(SYS_setfsuid, (long)user, 0);
}

EXPORT int
setfsgid(gid_t group)
{
	return kernel_alone(SYS_setfsgid, (long)group, 0);
}

int capset(void *header, const void *data);

EXPORT int
capset(void *header, const void *data)
{
	return kernel_alone(SYS_capset, (long)header, (long)data);
}

long
preload_prctl(long option, long a, long b, long c, long d)
{
	long r;

	if (preload_is_thp(SYS_prctl, option))
		return preload_thp(option, a, b, c, d);
	if (preload_is_for_one(SYS_prctl, option))
		return preload_kernel_alone(SYS_prctl, option, a, b, c, d, 0);
	r = preload_kernel(SYS_prctl, option, a, b, c, d);
	/* New memory has to be of the kind that the kernel can merge. */
	if (r == 0 && option == PR_SET_MEMORY_MERGE && !preload_sandboxed())
		cow__window_merged(a != 0);
	return r;
}

EXPORT int
prctl(int option, ...)
{
	long a, b, c, d;
	va_list ap;

	va_start(ap, option);
	a = va_arg(ap, long);
	b = va_arg(ap, long);
	c = va_arg(ap, long);
	d = va_arg(ap, long);
	va_end(ap);
	return (int)preload_prctl(option, a, b, c, d);
}

/* The others go through libc, which changes all threads that it knows. */
#define ALONE(name, parameters, arguments, ...)                                   \
	EXPORT int name parameters                                             \
	{                                                                      \
		typedef int name##_fn parameters;                              \
		static name##_fn *next;                                        \
		name##_fn *f = __atomic_load_n(&next, __ATOMIC_RELAXED);       \
		struct call call = { .suspended = false };                     \
		int r;                                                         \
                                                                               \
		if (!f) {                                                      \
			void *p = preload_next_symbol(#name);                  \
                                                                               \
			memcpy(&f, &p, sizeof(p));                             \
			__atomic_store_n(&next, f, __ATOMIC_RELAXED);          \
		}                                                              \
		if (nothing_to_end()) {                                        \
			r = f arguments;                                       \
			nothing_began();                                       \
			return r;                                              \
		}                                                              \
		r = begin_call(&call, true, __VA_ARGS__);                           \
		if (r == 0)                                                    \
			r = f arguments;                                       \
		end(&call);                                                    \
		return r;                                                      \
	}

#define SAME ((long)-1)
ALONE(setuid, (uid_t user), (user), SYS_setuid, (long)user, 0, 0)
ALONE(setgid, (gid_t group), (group), SYS_setgid, (long)group, 0, 0)
ALONE(seteuid, (uid_t user), (user), SYS_setresuid, SAME, (long)user, SAME)
ALONE(setegid, (gid_t group), (group), SYS_setresgid, SAME, (long)group, SAME)
ALONE(setreuid, (uid_t real, uid_t effective), (real, effective), SYS_setreuid, (long)real,
      (long)effective, 0)
ALONE(setregid, (gid_t real, gid_t effective), (real, effective), SYS_setregid, (long)real,
      (long)effective, 0)
ALONE(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved),
      SYS_setresuid, (long)real, (long)effective, (long)saved)
ALONE(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved),
      SYS_setresgid, (long)real, (long)effective, (long)saved)
ALONE(setgroups, (size_t n, const gid_t *groups), (n, groups), SYS_setgroups, (long)n, 0, 0)
ALONE(initgroups, (const char *user, gid_t group), (user, group), SYS_setgroups, 0, 0, 0)
