/* SPDX-License-Identifier: MIT */
/*
 * Filters of system calls: what libc's allocator, fork and exit need, and nothing else
 */
#ifndef COWSHED_TESTS_FILTERS_H
#define COWSHED_TESTS_FILTERS_H

#include "program.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(action) BPF_STMT(BPF_RET | BPF_K, action)
#define ALLOW(call)                                                            \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                 \
	        ANSWER(SECCOMP_RET_ALLOW)
/* Only with these bits in, or exactly this, argument `n`. Behind it the number is loaded again. */
#define ALLOW_IF(call, n, how, value)                                          \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 4), LOAD(args[n]),  \
	        BPF_JUMP(BPF_JMP | how | BPF_K, value, 0, 1),                  \
	        ANSWER(SECCOMP_RET_ALLOW), LOAD(nr)

static inline uint32_t action_of(const char *name)
{
	if (strcmp(name, "kill") == 0)
		return SECCOMP_RET_KILL_PROCESS;
	if (strcmp(name, "trap") == 0)
		return SECCOMP_RET_TRAP;
	check(strcmp(name, "errno") == 0);
	return SECCOMP_RET_ERRNO | EPERM;
}

static inline void set_filter(struct sock_filter *code, size_t n)
{
	struct sock_fprog program = { (unsigned short)n, code };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* For malloc, free, fork, wait, exit and pipes. */
static inline void allow_libc(const char *action)
{
	struct sock_filter code[] = {
		LOAD(nr),
		ALLOW(read),
		ALLOW(write),
		ALLOW(futex),
		ALLOW(brk),
		ALLOW(munmap),
		ALLOW(mprotect),
		ALLOW_IF(mmap, 3, BPF_JSET, MAP_ANONYMOUS),
		ALLOW_IF(mremap, 3, BPF_JEQ, MREMAP_MAYMOVE),
		ALLOW_IF(madvise, 2, BPF_JEQ, MADV_DONTNEED),
		ALLOW(clone),
		ALLOW(set_robust_list),
		ALLOW(rseq),
		ALLOW(wait4),
		ALLOW(rt_sigreturn),
		ALLOW(exit),
		ALLOW(exit_group),
		ANSWER(action_of(action)),
	};

	set_filter(code, COUNT(code));
}

/* The same, for a program that is loaded under the filter, and that opens files. */
static inline void allow_libc_and_exec(const char *action)
{
	struct sock_filter code[] = {
		LOAD(nr),
		ALLOW(execve),
#ifdef SYS_arch_prctl
		ALLOW(arch_prctl),
#endif
#ifdef SYS_access
		ALLOW(access),
#endif
		ALLOW(faccessat),
		ALLOW(openat),
		ALLOW(fstat),
		ALLOW(newfstatat),
		ALLOW(pread64),
		ALLOW(close),
		ALLOW(getrandom),
		ALLOW(prlimit64),
		ALLOW(set_tid_address),
		ALLOW(pipe2),
#ifdef SYS_pipe
		ALLOW(pipe),
#endif
		ALLOW(read),
		ALLOW(write),
		ALLOW(futex),
		ALLOW(brk),
		ALLOW(munmap),
		ALLOW(mprotect),
		ALLOW(mmap),
		ALLOW_IF(mremap, 3, BPF_JEQ, MREMAP_MAYMOVE),
		ALLOW_IF(madvise, 2, BPF_JEQ, MADV_DONTNEED),
		ALLOW(clone),
		ALLOW(set_robust_list),
		ALLOW(rseq),
		ALLOW(wait4),
		ALLOW(rt_sigreturn),
		ALLOW(exit),
		ALLOW(exit_group),
		ANSWER(action_of(action)),
	};

	set_filter(code, COUNT(code));
}

/* All is allowed but one call, or one form of it: `n` is an argument, or -1. */
static inline void forbid(int call, int n, uint32_t value, const char *action)
{
	struct sock_filter code[] = {
		LOAD(nr),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		         n < 0 ? (uint32_t)offsetof(struct seccomp_data, nr)
		               : (uint32_t)(offsetof(struct seccomp_data, args) + (size_t)n * 8)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n < 0 ? (uint32_t)call : value, 0, 1),
		ANSWER(action_of(action)),
		ANSWER(SECCOMP_RET_ALLOW),
	};

	set_filter(code, COUNT(code));
}

#endif
