/* SPDX-License-Identifier: MIT */
/*
 * A program under a filter that kills makes no calls but its own
 *
 * Memory was rewritten after a fork and is still frozen, so that an allocator would work on it
 * wherever a thread blocks. Then the program puts itself under a filter, in each way that
 * there is. It blocks, waits, sets handlers and makes small allocations: the filter allows
 * what a plain program does there, and ends it for any other call. A filter that was refused
 * changes nothing.
 */
#include "healing.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define BYTES (4 * HUGE_PAGE)
#define ALLOWED(call)                                                          \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                 \
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter code[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	ALLOWED(read),
	ALLOWED(write),
	ALLOWED(futex),
	ALLOWED(wait4),
	ALLOWED(rt_sigaction),
	ALLOWED(brk),
	ALLOWED(exit),
	ALLOWED(exit_group),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_fprog filter = { COUNT(code), code };

static int to_child[2], from_child[2];

/* Frozen memory that no child holds any more, written for so long that an allocator would
 * like to work where a thread blocks. */
static void rewrite_frozen(pid_t *held)
{
	unsigned char *block = get_filled(BYTES, 1);
	struct timespec begin, now;

	free(get(100)); /* libc's malloc begins with other calls */
	gate_make(to_child);
	gate_make(from_child);
	*held = fork();
	check(*held >= 0);
	if (*held == 0)
		_exit(0);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		fill(block, BYTES, 2);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec -
	                 begin.tv_nsec < 200000000);
}

static void talks(void)
{
	char byte;

	for (int i = 0; i < 200; i++) {
		check(write(to_child[1], "x", 1) == 1);
		check(read(to_child[0], &byte, 1) == 1);
	}
}

static void ignores(int sig)
{
	(void)sig;
}

/* What the filter allows. */
static void lives(pid_t held)
{
	struct sigaction a = { .sa_handler = ignores }, was;
	char *volatile small;
	int status;

	talks();
	for (int i = 0; i < 100; i++) {
		small = malloc(100);
		check(small != NULL);
		free(small);
	}
	check(sigaction(SIGUSR1, &a, NULL) == 0);
	check(sigaction(SIGUSR1, NULL, &was) == 0 && was.sa_handler == ignores);
	check(signal(SIGUSR1, SIG_DFL) == ignores);
	check(waitpid(held, &status, 0) == held && status == 0);
	talks();
}

static void under_strict(void *arg)
{
	pid_t held;

	(void)arg;
	rewrite_frozen(&held);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
	talks();
	syscall(SYS_exit, 0);
}

static void under_prctl(void *arg)
{
	pid_t held;

	(void)arg;
	rewrite_frozen(&held);
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	lives(held);
	syscall(SYS_exit_group, 0);
}

static void under_prctl_by_number(void *arg)
{
	pid_t held;

	(void)arg;
	rewrite_frozen(&held);
	check(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	lives(held);
	syscall(SYS_exit_group, 0);
}

static void *echoes(void *arg)
{
	char byte;

	while (read(to_child[0], &byte, 1) == 1)
		check(write(from_child[1], &byte, 1) == 1);
	return arg;
}

/* The filter is for all threads. Another one waits in a call meanwhile. */
static void under_seccomp(void *arg)
{
	pthread_t thread;
	pid_t held;
	char byte;

	(void)arg;
	rewrite_frozen(&held);
	check(pthread_create(&thread, NULL, echoes, NULL) == 0);
	check(write(to_child[1], "x", 1) == 1); /* it has begun when it answers */
	check(read(from_child[0], &byte, 1) == 1);
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
	              SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0);
	for (int i = 0; i < 200; i++) {
		check(write(to_child[1], "x", 1) == 1);
		check(read(from_child[0], &byte, 1) == 1);
	}
	syscall(SYS_exit_group, 0);
}

/* As programs ask whether there are filters. */
static void after_a_refusal(void *arg)
{
	struct healing h = healing_begin(BYTES);

	(void)arg;
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) < 0 &&
	      errno == EFAULT);
	check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) < 0 &&
	      errno == EFAULT);
	healing_may_begin(&h);
	check(holds(h.block, h.bytes, 2));
	healing_end(&h);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*body)(void *);
	} ways[] = {
		{ "strict", under_strict },
		{ "prctl", under_prctl },
		{ "prctl by number", under_prctl_by_number },
		{ "seccomp", under_seccomp },
		{ "refused", after_a_refusal },
	};

	for (size_t i = 0; i < COUNT(ways); i++) {
		in_child(ways[i].body, NULL);
		printf("sandboxed: %s\n", ways[i].name);
	}
	return 0;
}
