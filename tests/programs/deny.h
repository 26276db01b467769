/* SPDX-License-Identifier: MIT */
/*
 * A filter that answers calls with an error, as a sandbox does
 */
#ifndef COWSHED_TESTS_DENY_H
#define COWSHED_TESTS_DENY_H

#include "program.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* For this process and its children, for good. `n` is 14 at most. */
static inline void deny_calls(const int *calls, size_t n, int error)
{
	struct sock_filter filter[32];
	struct sock_fprog program = { .filter = filter };
	unsigned short at = 0;

	filter[at++] = (struct sock_filter)BPF_STMT(
		BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < n; i++) {
		filter[at++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1);
		filter[at++] = (struct sock_filter)BPF_STMT(
			BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error);
	}
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
	                                            SECCOMP_RET_ALLOW);
	program.len = at;
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

#endif
