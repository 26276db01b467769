/* SPDX-License-Identifier: MIT */
/*
 * A filter allows read, write, exit and exit_group, and ends a process that makes another
 * call. So the shim may make no other call when the program ends, nor for memory that the
 * program has already. (It does not end by exit(), in which tools for coverage write files.)
 */
#include "program.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOWED(call)                                                          \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                 \
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOWED(read),
		ALLOWED(write),
		ALLOWED(exit),
		ALLOWED(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
	};
	struct sock_fprog program = { COUNT(code), code };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void leaves(void (*leave)(int), unsigned char *block)
{
	int status;
	pid_t child = fork();

	check(child >= 0);
	if (child == 0) {
		memset(block, 2, MIB);
		filter();
		memset(block, 3, MIB);
		leave(7);
	}
	check(waitpid(child, &status, 0) == child);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(void)
{
	unsigned char *block = get_filled(4 * MIB, 1);

	fflush(NULL);
	leaves(_exit, block);
	leaves(_Exit, block);
	check(holds(block, 4 * MIB, 1));
	free(block);
	puts("filtered: done");
	return 0;
}
