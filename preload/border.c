/* SPDX-License-Identifier: MIT */
/*
 * Which calls make a process a stranger to its relatives
 *
 * The engine makes the border (core/fork/border.h) just before the call. This file tells
 * whether the call is one. It has to be a hard one if the process could open files by their mappings
 * afterwards, or if those it leaves keep descriptors and may not trace it.
 *
 *   users                         hard, unless the last root user goes and no capability stays, and
 *                                 those it leaves may trace it. If it does not come to that, the
 *                                 next border makes up for it
 *   groups                        no border yet for a process that may trace and do everything.
 *                                 It gives that up by a later call. Hard, if those it leaves may
 *                                 not trace it
 *   capabilities, seccomp,        hard if it has such a capability before the call
 *   Landlock, no_new_privs,
 *   namespaces, chroot
 *   dumpable, users of files      hard: the process hides from relatives of the same user, who keep
 *                                 the descriptors
 *
 * Calls that change nothing make none: programs ask by them, and set what is set already.
 * A border that was not needed costs gains, and never correctness.
 *
 * Some calls change the calling thread alone, and some only the children that come after. These
 * children are strangers from birth, because the process itself goes on as it was.
 */
#include "preload/next.h"
#include "preload/park.h"

#include "core/fork/border.h"
#include "core/fork/fork.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY_ELSE ((long)(uint32_t)-1) /* an id that stays as it is */

#ifndef SYS_close_range /* Linux 5.9 */
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif

enum border { NONE, SOFT, HARD };

extern char __libc_single_threaded __attribute__((weak));

/* How many relatives there were when a change of the user of files was found to be no border. */
static uint32_t harmless;

/* A thread, but not its process, gave something up, and may have made others since. Or the next
 * children will be in a namespace in which the process is not. From then on each child is a stranger
 * from birth. */
static bool alone;

static enum border
by_capabilities(void)
{
	return cow__process_opens_mapped() ? HARD : SOFT;
}

/* After a change of ids the kernel lets nobody trace the process without this capability. Relatives
 * have what the process has now. As root of most containers they lack it, and keep descriptors, by
 * which they could write. */
static bool
relatives_trace(void)
{
	return cow__process_capable(1ull << CAP_SYS_PTRACE, true, false);
}

static bool
is(long id, long now)
{
	return (uint32_t)id == (uint32_t)now;
}

static bool
stays(long id, long now)
{
	return is(id, NOBODY_ELSE) || is(id, now);
}

static bool
keeps_capabilities(void)
{
	long bits = preload_kernel(SYS_prctl, PR_GET_SECUREBITS, 0, 0, 0, 0);

	return bits < 0 || (bits & (SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP));
}

/* The kernel takes all capabilities when the last of the three users that is root goes. `root`: one
 * of them is root now. */
static enum border
by_users(bool root, long r, long e, long s)
{
	bool others = root && r && e && s && !is(r, NOBODY_ELSE) && !is(e, NOBODY_ELSE) &&
	              !is(s, NOBODY_ELSE);

	if (!relatives_trace())
		return HARD;
	return others && !keeps_capabilities() ? SOFT : by_capabilities();
}

static enum border
by_user_call(long number, long a, long b, long c)
{
	uid_t r, e, s;
	bool root;

	if (preload_kernel(SYS_getresuid, &r, &e, &s) < 0)
		return HARD;
	root = !r || !e || !s;
	switch (number) {
	case SYS_setuid:
		if (is(a, r) && is(a, e) && is(a, s))
			return NONE;
		/* Without the capability it changes the effective user alone. */
		return cow__process_capable(1ull << CAP_SETUID, true, false)
		               ? by_users(root, a, a, a)
		               : HARD;
	case SYS_setreuid:
		/* The saved user becomes the effective one. */
		return stays(a, r) && stays(b, e) && is(s, e) ? NONE : by_users(root, a, b, b);
	default: /* setresuid */
		return stays(a, r) && stays(b, e) && stays(c, s) ? NONE : by_users(root, a, b, c);
	}
}

static bool
same_groups(long number, long a, long b, long c)
{
	gid_t r, e, s;

	if (preload_kernel(SYS_getresgid, &r, &e, &s) < 0)
		return false;
	switch (number) {
	case SYS_setgid:
		return is(a, r) && is(a, e) && is(a, s);
	case SYS_setregid:
		return stays(a, r) && stays(b, e) && is(s, e);
	case SYS_setresgid:
		return stays(a, r) && stays(b, e) && stays(c, s);
	default:
		return false;
	}
}

static enum border
by_group_call(long number, long a, long b, long c)
{
	if (same_groups(number, a, b, c))
		return NONE;
	if (!relatives_trace())
		return HARD;
	return cow__process_capable(1ull << CAP_SYS_PTRACE | 1ull << CAP_SYS_ADMIN |
	                                    1ull << CAP_SETUID,
	                            false, false)
	               ? NONE
	               : by_capabilities();
}

static enum border
by_prctl(long option, long a, long b)
{
	bool changes = true;

	switch (option) {
	case PR_SET_NO_NEW_PRIVS:
		changes = a == 1 && preload_kernel(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
		break;
	case PR_SET_SECCOMP:
		changes = a == SECCOMP_MODE_STRICT || b;
		break;
	case PR_SET_SECUREBITS:
		changes = preload_kernel(SYS_prctl, PR_GET_SECUREBITS, 0, 0, 0, 0) != a;
		break;
	case PR_CAPBSET_DROP:
		changes = preload_kernel(SYS_prctl, PR_CAPBSET_READ, a, 0, 0, 0) == 1;
		break;
	case PR_CAP_AMBIENT:
		changes = a == PR_CAP_AMBIENT_LOWER || a == PR_CAP_AMBIENT_CLEAR_ALL;
		break;
	case PR_SET_DUMPABLE: /* it hides from relatives that could trace it, so they may not write */
		return preload_kernel(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0) != a ? HARD : NONE;
	default:
		return NONE;
	}
	return changes ? by_capabilities() : NONE;
}

#define NAMESPACES                                                              \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |         \
	 CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME)
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* Processes and clocks get a new namespace at their birth. setns() may be asked by a descriptor
 * alone, which does not tell. */
static bool
later_children(long number, long a, long b)
{
	const long kinds = CLONE_NEWPID | CLONE_NEWTIME;

	return (number == SYS_unshare && (a & kinds)) ||
	       (number == SYS_setns && (!b || (b & kinds)));
}

static enum border
border_of(long number, long a, long b, long c)
{
	switch (number) {
	case SYS_setuid:
	case SYS_setreuid:
	case SYS_setresuid:
		return by_user_call(number, a, b, c);
	case SYS_setgid:
	case SYS_setregid:
	case SYS_setresgid:
	case SYS_setgroups:
		return by_group_call(number, a, b, c);
	case SYS_prctl:
		return by_prctl(a, b, c);
	case SYS_unshare:
		return a & NAMESPACES ? by_capabilities() : NONE;
	case SYS_seccomp:
		return a == SECCOMP_SET_MODE_STRICT || (a == SECCOMP_SET_MODE_FILTER && c)
		               ? by_capabilities()
		               : NONE;
	case SYS_setfsuid:
	case SYS_setfsgid: /* the kernel makes the process not dumpable then */
		return HARD;
	default: /* setns, capset, chroot, pivot_root, landlock_restrict_self, lsm_set_self_attr */
		return by_capabilities();
	}
}

static bool
beside_threads(void)
{
	return (!&__libc_single_threaded || !__libc_single_threaded) && !preload_is_vfork_child();
}

/* The user of files decides about files alone: who may trace whom goes by the other users. But the
 * process is not dumpable any more, so relatives without CAP_SYS_PTRACE can't trace it. */
bool
preload_border_by_file_user(void)
{
	uint32_t relatives = preload_sandboxed() ? 0 : cow__border_relatives();
	bool threads;

	if (!relatives)
		return false;
	threads = beside_threads();
	if (!threads && relatives == harmless)
		return false;
	if (!cow__process_capable(1ull << CAP_SYS_PTRACE, true, false))
		return true;
	if (!threads)
		harmless = relatives;
	return false;
}

bool
preload_border_none(void)
{
	if (preload_sandboxed()) /* it has left all files */
		return true;
	return cow__border_relatives() == 0 && !beside_threads() &&
	       !(cow__border_soft() && (cow__process_opens_mapped() || !relatives_trace()));
}

int
preload_border(bool whole, long number, long a, long b, long c, struct preload_crossing *ret)
{
	int saved = errno, r = 0;
	bool threads = beside_threads();
	enum border kind;

	harmless = 0; /* relatives may be fewer than before, or have fewer capabilities */
	ret->call = 0;
	if (threads) {
		ret->call = cow__border_call_begins();
		cow__border_fence();
	}
	/* Beside threads it may be for this one alone, also where nobody is left now. And a handler may
	 * fork during the call. */
	kind = border_of(number, a, b, c);
	/* Other threads keep what this one gives up. */
	if (kind == SOFT && threads && !whole)
		kind = by_capabilities();
	if ((threads && !whole && kind != NONE) || later_children(number, a, b))
		__atomic_store_n(&alone, true, __ATOMIC_RELAXED);
	if (kind != NONE && (cow__border_due() || (kind == HARD && cow__border_soft()))) {
		preload_report_stranger();
		r = cow__border_make(kind == HARD, false);
	}
	/* A filter of its own may forbid a child of vfork() to ask anything afterwards. */
	ret->is_border = kind != NONE && r == 0 && !preload_is_vfork_child();
	ret->hard = kind == HARD;
	errno = r < 0 ? -r : saved;
	return r < 0 ? -1 : 0;
}

void
preload_border_over(const struct preload_crossing *crossing, bool filtered)
{
	int saved = errno;

	/* Since the border there were no relatives. Nothing but the library and handlers has run since
	 * the call, so it is not too late. */
	if (!filtered && !preload_sandboxed() && crossing->is_border && cow__border_due())
		(void)cow__border_make(crossing->hard || cow__process_opens_mapped(), true);
	cow__border_call_ends(crossing->call);
	errno = saved;
}

COW_FORK_CODE void
preload_border_early(long flags)
{
	if (!(flags & CLONE_FILES) || preload_sandboxed() ||
	    preload_kernel(SYS_unshare, CLONE_FILES) == 0)
		return;
	/* Some containers refuse unshare() of any kind. Where this is refused, too, the parent finds its
	 * descriptors closed, and goes on without them. */
	(void)preload_kernel(SYS_close_range, UINT_MAX, UINT_MAX, CLOSE_RANGE_UNSHARE);
}

COW_FORK_CODE void
preload_border_born(long flags)
{
	if (preload_sandboxed())
		return;
	if ((flags & NAMESPACES) || alone)
		cow__border_born();
	if (alone) /* this process has one thread */
		alone = false;
}
