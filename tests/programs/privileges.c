/* SPDX-License-Identifier: MIT */
/*
 * Privileges given up are given up by every thread of the process
 *
 * The kernel keeps privileges for each thread, and libc changes the threads that it knows.
 * A program that never started a thread has one thread, even if its malloc starts some.
 * After each of these calls (not setfsuid, which gives nothing up) all threads in /proc/self/task must have the same user, groups,
 * capabilities and filters. Which calls are allowed depends on the user.
 *
 * Some of the calls are allowed in signal handlers, and after forks that run no handlers.
 */
#include "program.h"

#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif
#define NOBODY 65534
#define CALLS 300

extern int capset(cap_user_header_t header, cap_user_data_t data);

static struct sock_filter allow[] = {
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog filter = { .len = 1, .filter = allow };

static int no_new(void)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int by_uid(void) { return setuid(NOBODY); }
static int by_gid(void) { return setgid(NOBODY); }
static int by_reuid(void) { return setreuid(NOBODY, NOBODY); }
static int by_regid(void) { return setregid(NOBODY, NOBODY); }
static int by_resuid(void) { return setresuid(1, NOBODY, 0); }
static int by_resgid(void) { return setresgid(1, NOBODY, 0); }
static int by_euid(void) { return seteuid(NOBODY); }
static int by_egid(void) { return setegid(NOBODY); }

static int by_groups(void)
{
	gid_t one = NOBODY;

	return setgroups(1, &one);
}

static int by_initgroups(void) { return initgroups("nobody", NOBODY); }

static int by_capset(void)
{
	struct __user_cap_header_struct who = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { 0 };

	return capset(&who, none);
}

static int by_bound(void)
{
	return prctl(PR_CAPBSET_DROP, CAP_SYS_TIME, 0, 0, 0);
}

static int by_prctl_filter(void)
{
	return no_new() || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter,
	                         0, 0);
}

static int by_filter(void)
{
	return no_new() ||
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0;
}

static int by_number(void)
{
	return syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) != 0;
}

static const struct way {
	const char *name;
	int (*call)(void);
} ways[] = {
	{ "setuid", by_uid },
	{ "setgid", by_gid },
	{ "setreuid", by_reuid },
	{ "setregid", by_regid },
	{ "setresuid", by_resuid },
	{ "setresgid", by_resgid },
	{ "seteuid", by_euid },
	{ "setegid", by_egid },
	{ "setgroups", by_groups },
	{ "initgroups", by_initgroups },
	{ "capset", by_capset },
	{ "a capability", by_bound },
	{ "no new ones", no_new },
	{ "prctl's filter", by_prctl_filter },
	{ "seccomp", by_filter },
	{ "by number", by_number },
};

/* What this thread may do, of its status. */
static void read_status(const char *task, char *ret, size_t bytes)
{
	static const char *const kept[] = { "Uid:", "Gid:", "Groups:", "Cap",
		                            "NoNewPrivs:", "Seccomp:" };
	char path[64], line[256];
	size_t i, n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%.12s/status", task);
	f = fopen(path, "r");
	ret[0] = '\0';
	while (f && fgets(line, sizeof(line), f))
		for (i = 0; i < COUNT(kept); i++)
			if (!strncmp(line, kept[i], strlen(kept[i])) &&
			    n < bytes)
				n += (size_t)snprintf(ret + n, bytes - n, "%s",
				                      line);
	if (f)
		fclose(f);
}

static void same_for_all(const char *name)
{
	char mine[2048], other[2048], self[16];
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;

	snprintf(self, sizeof(self), "%d", getpid());
	read_status(self, mine, sizeof(mine));
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		read_status(e->d_name, other, sizeof(other));
		if (other[0] && strcmp(mine, other) != 0) {
			dprintf(2, "%s: this thread:\n%sanother:\n%s", name,
			        mine, other);
			_exit(1);
		}
	}
	if (d)
		closedir(d);
}

static int gate[2];

static void waits(void *arg)
{
	(void)arg;
	gate_wait(gate);
}

static void try_way(void *arg)
{
	const struct way *way = arg;
	unsigned char *kept = get_filled(64 * MIB, 1);
	pid_t child;

	gate_make(gate);
	child = start(waits, NULL);
	free(get_filled(64 * MIB, 2));
	/* If the call is not allowed, nothing is changed, or half of it. */
	(void)!way->call();
	same_for_all(way->name);
	free(get_filled(64 * MIB, 3));
	same_for_all(way->name);
	check(holds(kept, 64 * MIB, 1));
	gate_open(gate);
	finish(child);
}

static volatile sig_atomic_t calls;

static void handler(int sig)
{
	int saved = errno;

	(void)sig;
	check(setgid(getgid()) == 0);
	calls++;
	errno = saved;
}

static void in_handlers(void *arg)
{
	struct itimerval every = { { 0, 1000 }, { 0, 1000 } };
	struct sigaction act = { .sa_handler = handler };
	unsigned char *block[4] = { NULL };
	unsigned i;

	(void)arg;
	check(setgid(getgid()) == 0);
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (i = 0; calls < CALLS; i++) {
		free(block[i % 4]);
		block[i % 4] = get((size_t)(8 + i % 5 * 8) * MIB);
		block[i % 4][0] = 1;
	}
	memset(&every, 0, sizeof(every));
	setitimer(ITIMER_REAL, &every, NULL);
}

/* The parent's other threads are not there, though memory may say so. */
static void after_raw_forks(void *arg)
{
	int status;
	pid_t pid;

	(void)arg;
	free(get_filled(64 * MIB, 1));
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	check(pid >= 0);
	if (pid == 0)
		_exit(setgid(getgid()) != 0 || unshare(CLONE_FS) != 0);
	check(waitpid(pid, &status, 0) == pid && status == 0);
	pid = vfork();
	if (pid == 0)
		_exit(setgid(getgid()) != 0 || unshare(CLONE_FS) != 0);
	check(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
	size_t i;

	for (i = 0; i < COUNT(ways); i++) {
		in_child(try_way, (void *)(uintptr_t)&ways[i]);
		printf("privileges: %s\n", ways[i].name);
	}
	puts("privileges: the user of files");
	in_child(in_handlers, NULL);
	puts("privileges: in handlers");
	in_child(after_raw_forks, NULL);
	puts("privileges: after raw forks");
	return 0;
}
