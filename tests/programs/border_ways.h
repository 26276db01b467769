/* SPDX-License-Identifier: MIT */
/*
 * The calls by which a process gives up privileges
 *
 * A way returns 0, or -1 with errno if the kernel refuses it here. Those with `root` need
 * it. `strict` leaves read, write and exit alone.
 */
#ifndef COWSHED_TESTS_BORDER_WAYS_H
#define COWSHED_TESTS_BORDER_WAYS_H

#include "border.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif

extern int capset(cap_user_header_t header, cap_user_data_t data);

struct way {
	const char *name;
	int (*drop)(void);
	int root, strict;
	void (*before)(void); /* before the program has any memory */
};

static struct sock_filter border_allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
static struct sock_fprog border_filter = { .len = 1, .filter = border_allow };
static int border_namespace = -1;
static char border_folder[256];

static int by_none(void) { return 0; }
static int by_no_new(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }
static int by_no_new_number(void) { return (int)syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }

static int by_ids(void)
{
	return setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY) ? -1 : 0;
}

/* No descriptor can be had during the call. */
static int by_ids_without_descriptors(void)
{
	const struct rlimit none = { 0, 0 };

	return setrlimit(RLIMIT_NOFILE, &none) || by_ids() ? -1 : 0;
}

static int by_ids_number(void)
{
	return syscall(SYS_setgroups, 0, NULL) || syscall(SYS_setgid, NOBODY) ||
	                       syscall(SYS_setuid, NOBODY)
	               ? -1
	               : 0;
}

static int by_resuid(void) { return setresuid(NOBODY, NOBODY, NOBODY); }
static int by_reuid(void) { return setreuid(NOBODY, NOBODY); }
static int by_euid(void) { return seteuid(NOBODY); }
static int by_resgid(void) { return setresgid(NOBODY, NOBODY, NOBODY); }
static int by_groups(void) { return setgroups(0, NULL); }

static void capabilities_without(int one, int inheritable)
{
	struct __user_cap_header_struct who = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	check(syscall(SYS_capget, &who, data) == 0);
	data[one / 32].effective &= ~(1u << one % 32);
	data[one / 32].permitted &= ~(1u << one % 32);
	data[inheritable / 32].inheritable |= 1u << inheritable % 32;
	check(syscall(SYS_capset, &who, data) == 0);
}

/* The call makes the process not dumpable. That is a border to relatives without the right to trace
 * everybody. */
static void before_fsuid(void) { capabilities_without(CAP_SYS_PTRACE, CAP_CHOWN); }

static int raised;

static void before_ambient(void)
{
	capabilities_without(CAP_WAKE_ALARM, CAP_CHOWN);
	raised = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0) == 0;
	check(raised || errno == EINVAL); /* gVisor has no such capabilities: skipped */
}

static int by_ambient(void)
{
	int r = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);

	check(raised || r != 0);
	return r;
}

/* Who changed its user is not dumpable: nobody of the same user may trace it, or its children. */
static void before_undumpable(void) { check(setresuid(NOBODY, NOBODY, NOBODY) == 0); }

static int by_fsuid(void)
{
	setfsuid(NOBODY);
	return 0;
}

static int capset_with(int number)
{
	struct __user_cap_header_struct who = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	return number ? (int)syscall(SYS_capset, &who, none) : capset(&who, none);
}

static int by_capset(void) { return capset_with(0); }
static int by_capset_number(void) { return capset_with(1); }
static int by_bound(void) { return prctl(PR_CAPBSET_DROP, CAP_SYS_TIME, 0, 0, 0); }

static int by_bound40(void)
{
	for (int i = 0; i < 40; i++)
		if (prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0 && errno != EINVAL)
			return -1;
	return 0;
}

static int by_dumpable(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }
static int by_strict(void) { return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0); }
static int by_strict_number(void) { return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0); }
static int by_ids_strict(void) { return by_ids() || by_strict() ? -1 : 0; }

static int by_filter(void)
{
	return by_no_new() || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &border_filter, 0, 0)
	               ? -1
	               : 0;
}

/* A user with the capability needs no prctl() before it. */
static int by_filter_number(void)
{
	if (geteuid() != 0 && by_no_new_number() != 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &border_filter);
}

/* It handles only writes of the first version: all files may be read. */
static int by_landlock(void)
{
	uint64_t handled = 1 << 1 | 1 << 4 | 1 << 5;
	long fd = syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
	int r;

	if (fd < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	r = (int)syscall(SYS_landlock_restrict_self, fd, 0);
	close((int)fd);
	return r;
}

static int by_new_user(void) { return unshare(CLONE_NEWUSER); }
static int by_new_user_number(void) { return (int)syscall(SYS_unshare, CLONE_NEWUSER); }
static int by_new_pid(void) { return unshare(CLONE_NEWPID); }
static int by_new_mounts(void) { return unshare(CLONE_NEWNS); }
static int by_setns(void) { return setns(border_namespace, 0); }

/* A child makes the namespace and ends. The descriptor keeps it. */
static void before_setns(void)
{
	int made[2], end[2];
	char path[40];
	pid_t pid;

	gate_make(made);
	gate_make(end);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		(void)!raw(SYS_unshare, CLONE_NEWUSER, 0, 0, 0, 0, 0);
		gate_open(made);
		gate_wait(end);
		_exit(0);
	}
	gate_wait(made);
	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	border_namespace = open(path, O_RDONLY | O_CLOEXEC);
	gate_open(end);
	check(waitpid(pid, NULL, 0) == pid);
}

static void before_chroot(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(border_folder, sizeof(border_folder), "%s", tmp ? tmp : "/tmp");
}

static int by_chroot(void) { return chroot(border_folder) || chdir("/") ? -1 : 0; }
static int by_chroot_number(void) { return syscall(SYS_chroot, border_folder) || chdir("/") ? -1 : 0; }

/* By an instruction of the program's own: nobody else sees the call. */
static int by_unseen(void) { return (int)raw(SYS_setresuid, NOBODY, NOBODY, NOBODY, 0, 0, 0); }

/* A thousand requests, each as another user, and then for good. */
static int by_toggles(void)
{
	for (int i = 0; i < 1000; i++)
		if (seteuid(NOBODY) != 0 || seteuid(0) != 0)
			return -1;
	return by_ids();
}

static const struct way ways[] = {
	{ "ids", by_ids, 1, 0, NULL },
	{ "ids-number", by_ids_number, 1, 0, NULL },
	{ "resuid", by_resuid, 1, 0, NULL },
	{ "reuid", by_reuid, 1, 0, NULL },
	{ "euid", by_euid, 1, 0, NULL },
	{ "fsuid", by_fsuid, 1, 0, before_fsuid },
	{ "ambient", by_ambient, 1, 0, before_ambient },
	{ "resgid", by_resgid, 1, 0, NULL },
	{ "groups", by_groups, 1, 0, NULL },
	{ "capset", by_capset, 1, 0, NULL },
	{ "capset-number", by_capset_number, 1, 0, NULL },
	{ "bound", by_bound, 1, 0, NULL },
	{ "bound40", by_bound40, 1, 0, NULL },
	{ "no-new", by_no_new, 0, 0, NULL },
	{ "no-new-number", by_no_new_number, 0, 0, NULL },
	{ "dumpable", by_dumpable, 0, 0, NULL },
	{ "strict", by_strict, 0, 1, NULL },
	{ "strict-number", by_strict_number, 0, 1, NULL },
	{ "ids-strict", by_ids_strict, 1, 1, NULL },
	{ "filter", by_filter, 0, 0, NULL },
	{ "filter-number", by_filter_number, 0, 0, NULL },
	{ "landlock", by_landlock, 0, 0, NULL },
	{ "new-user", by_new_user, 0, 0, NULL },
	{ "new-user-number", by_new_user_number, 0, 0, NULL },
	{ "new-pid", by_new_pid, 1, 0, NULL },
	{ "new-mounts", by_new_mounts, 1, 0, NULL },
	{ "setns", by_setns, 1, 0, before_setns },
	{ "chroot", by_chroot, 1, 0, before_chroot },
	{ "chroot-number", by_chroot_number, 1, 0, before_chroot },
	{ "toggles", by_toggles, 1, 0, NULL },
	{ "unseen", by_unseen, 1, 0, NULL }, /* ... or have no border but border=fork */
	/* border_works.c leaves these out: the first can't execute a program afterwards. */
	{ "ids-no-fds", by_ids_without_descriptors, 1, 0, NULL },
	{ "undumpable", by_none, 1, 0, before_undumpable },
	{ "none", by_none, 0, 0, NULL }, /* for children that are born strangers */
};

#endif
