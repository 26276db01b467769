/* SPDX-License-Identifier: MIT */
/*
 * older VERSION COMMAND...: runs a command as if the kernel were 5.10 or 6.1
 *
 * A filter of system calls (seccomp) refuses what these kernels lack, with the error that they
 * give. So tests of the fallbacks run at full speed, without a virtual machine. Two differences
 * are missing: read-only shared mappings of sealed memfds (refused before 6.7), and private
 * file mappings under MREMAP_DONTUNMAP: 5.10 refuses only these, the filter refuses all.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RULES_MAX = 32, INS_MAX = 6 * RULES_MAX + 4 };

static struct sock_filter code[INS_MAX];
static unsigned short count;

static void add(unsigned short op, unsigned k, unsigned char yes, unsigned char no)
{
	code[count++] = (struct sock_filter)BPF_JUMP(op, k, yes, no);
}

/* Call `nr` fails with `error` if its argument equals `value`, or has a bit of it. */
static void refuse(unsigned nr, unsigned argument, unsigned short test, unsigned value, unsigned error)
{
	add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
	add(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3);
	add(BPF_LD | BPF_W | BPF_ABS,
	    (unsigned)offsetof(struct seccomp_data, args) + 8 * argument, 0, 0);
	add(BPF_JMP | test | BPF_K, value, 0, 1);
	add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
}

static void refuse_all(unsigned nr)
{
	add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
	add(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1);
	add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS, 0, 0);
}

static void before_6_13(void)
{
	enum { GUARD_INSTALL = 102, GUARD_REMOVE = 103, MSEAL = 462, CACHESTAT = 451 };
	enum { NOEXEC_SEAL_OR_EXEC = 0x18 };
	const unsigned pagemap_scan = 0xc0606610, uffdio_api = 0xc018aa3f;

	refuse(SYS_madvise, 2, BPF_JEQ, GUARD_INSTALL, EINVAL);
	refuse(SYS_madvise, 2, BPF_JEQ, GUARD_REMOVE, EINVAL);
	refuse(SYS_memfd_create, 1, BPF_JSET, NOEXEC_SEAL_OR_EXEC, EINVAL);
	refuse(SYS_ioctl, 1, BPF_JEQ, pagemap_scan, ENOTTY);
	/* Marks that need no handler (6.7) are a feature of userfaultfd. */
	refuse(SYS_ioctl, 1, BPF_JEQ, uffdio_api, EINVAL);
	refuse_all(MSEAL);
	refuse_all(CACHESTAT);
}

static void before_5_11(void)
{
	enum { POPULATE_READ = 22, POPULATE_WRITE = 23, DONTNEED_LOCKED = 24, COLLAPSE = 25 };
	enum { DONTUNMAP = 4, MAP_FLAGS = 3, FUTEX_WAITV = 449 };

	refuse(SYS_madvise, 2, BPF_JEQ, POPULATE_READ, EINVAL);
	refuse(SYS_madvise, 2, BPF_JEQ, POPULATE_WRITE, EINVAL);
	refuse(SYS_madvise, 2, BPF_JEQ, DONTNEED_LOCKED, EINVAL);
	refuse(SYS_madvise, 2, BPF_JEQ, COLLAPSE, EINVAL);
	refuse(SYS_mremap, MAP_FLAGS, BPF_JSET, DONTUNMAP, EINVAL);
	refuse_all(FUTEX_WAITV);
}

int main(int argc, char **argv)
{
	struct sock_fprog program = { .filter = code };

	if (argc < 3 || (strcmp(argv[1], "5.10") != 0 && strcmp(argv[1], "6.1") != 0)) {
		fputs("usage: older 5.10|6.1 COMMAND...\n", stderr);
		return 2;
	}
	before_6_13();
	if (strcmp(argv[1], "5.10") == 0)
		before_5_11();
	add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	program.len = count;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		perror("older: seccomp");
		return 77;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
