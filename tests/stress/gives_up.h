/* SPDX-License-Identifier: MIT */
/*
 * Processes of a storm that give up privileges, and attack
 *
 * After such a call a process is a stranger to its relatives. Under the shim they go on to
 * share pages, and must not notice.
 */
#ifndef STRESS_GIVES_UP_H
#define STRESS_GIVES_UP_H

#include "blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Without these two the process can't open a file by its mapping, so the border is made by a mark
 * and not by a seal. */
static inline int capabilities_dropped(void)
{
	struct __user_cap_header_struct who = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	int caps[] = { CAP_SYS_ADMIN, CAP_SYS_PTRACE, 40 /* CAP_CHECKPOINT_RESTORE */ };

	if (syscall(SYS_capget, &who, data) != 0)
		return -1;
	for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++) {
		data[caps[i] / 32].effective &= ~(1u << caps[i] % 32);
		data[caps[i] / 32].permitted &= ~(1u << caps[i] % 32);
	}
	return (int)syscall(SYS_capset, &who, data);
}

/* The call may be denied, and beside threads the border may want another moment. */
static inline void gives_up(uint64_t *random)
{
	int r = 0;

	switch (below(random, 4)) {
	case 0:
		r = prctl(PR_SET_DUMPABLE, (int)below(random, 2), 0, 0, 0);
		break;
	case 1:
		r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		break;
	case 2:
		r = prctl(PR_CAPBSET_DROP, (int)below(random, 38), 0, 0, 0);
		break;
	default:
		r = capabilities_dropped();
	}
	check(r == 0 || errno == EPERM || errno == EAGAIN || errno == ENOMEM);
}

/* A call that always gives something up, or makes it different. False: it was refused. */
static inline int becomes_stranger(void)
{
	return prctl(PR_SET_DUMPABLE, prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 1, 0, 0, 0) == 0;
}

/* Writes and punches each file of memory that the process still has. */
static inline void attack(void)
{
	static const unsigned char rubbish[3 * 4096] = { 0xee };
	struct stat st;
	off_t at = 0;

	for (int fd = 3; fd < 1024; fd++) {
		if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 0)
			continue;
		for (int i = 0; i < 64 && (at = lseek(fd, at, SEEK_DATA)) >= 0; i++)
			at += pwrite(fd, rubbish, sizeof(rubbish), at) + 2;
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1l << 40);
	}
}

#endif
