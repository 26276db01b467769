/* SPDX-License-Identifier: MIT */
/*
 * The gate for calls of the kernel: see the header.
 *
 * /proc/self/status tells whether there is a filter. To open and read a file is what the dynamic
 * linker has done a moment ago, so no filter that lets the program start ends it for that.
 * prctl(PR_GET_SECCOMP) would be cheaper, but a filter may forbid it.
 */
#include "memfd/gate.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/syscall.h"

#include <string.h>

uint32_t cow__gate_state = COW__GATE_UNKNOWN;
COW_EXPORT uint32_t cow__sandboxed;
static uint32_t before = COW__GATE_OPEN; /* a filter of the process's own */

/* The hexadecimal or decimal number behind `key`, if it is 0: that is all that matters. */
static bool
is_zero(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	if (!p)
		return true;
	for (p += strlen(key); *p == ' ' || *p == '\t' || *p == '0'; p++)
		;
	return *p == '\n' || *p == '\0';
}

/* Directly: nothing is known of the gate yet. A process without /proc has no filter, as far as
 * can be known. */
static uint32_t
read_filter(void)
{
	char text[4096];
	long n, fd = cow__syscall(SYS_openat, AT_FDCWD, (long)"/proc/self/status",
	                          O_RDONLY | O_CLOEXEC, 0, 0, 0);

	if (fd < 0)
		return COW__GATE_OPEN;
	n = cow__syscall(SYS_read, fd, (long)text, sizeof(text) - 1, 0, 0, 0);
	(void)cow__syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	text[n > 0 ? n : 0] = '\0';
	if (is_zero(text, "\nSeccomp:"))
		return COW__GATE_OPEN;
	/* Linux has this line since 6.4. */
	return cow__tries_make(!is_zero(text, "\nSigCgt:"), strstr(text, "\nuntag_mask:") != NULL);
}

/* The first call of a process comes before it has threads. */
static uint32_t
state_now(void)
{
	uint32_t unknown = COW__GATE_UNKNOWN, found;

	if (!__atomic_compare_exchange_n(&cow__gate_state, &unknown, COW__GATE_OPEN, false,
	                                 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return unknown;
	found = read_filter();
	__atomic_store_n(&cow__gate_state, found, __ATOMIC_RELAXED);
	return found;
}

/* What glibc's malloc, free and their like may ask for, and what the library asks on behalf of
 * a call of the program's. */
static bool
is_libcs(long nr, long c, long d)
{
	switch (nr) {
	case SYS_mmap:
		return (d & MAP_ANONYMOUS) && (d & MAP_PRIVATE);
	case SYS_mremap:
		return d == MREMAP_MAYMOVE;
	case SYS_madvise:
		return c == MADV_DONTNEED;
	case SYS_munmap:
	case SYS_mprotect:
	case SYS_pkey_mprotect:
	case SYS_mlock2:
	case SYS_munlock:
	case SYS_munlockall:
	case SYS_futex:
	case SYS_exit:
	case SYS_exit_group:
		return true;
	default:
		return false;
	}
}

bool
cow__gate_lets(long nr, long a, long b, long c, long d)
{
	switch (state_now()) {
	case COW__GATE_TRIED:
		return !cow__tries_killed(nr, a, b, c, d);
	case COW__GATE_LIBC:
		return is_libcs(nr, c, d);
	default:
		return true;
	}
}

bool
cow__gate_is_libcs(void)
{
	return __atomic_load_n(&cow__gate_state, __ATOMIC_RELAXED) != COW__GATE_OPEN &&
	       state_now() == COW__GATE_LIBC;
}

void
cow__gate_libc(bool libc)
{
	uint32_t now = __atomic_load_n(&cow__gate_state, __ATOMIC_RELAXED);

	if (libc && now != COW__GATE_LIBC)
		before = now;
	__atomic_store_n(&cow__gate_state, libc ? COW__GATE_LIBC : before, __ATOMIC_RELAXED);
}

COW_FORK_CODE COW_EXPORT long
cow__ask(long nr, long a, long b, long c, long d, long e, long f)
{
	if (__builtin_expect(__atomic_load_n(&cow__gate_state, __ATOMIC_RELAXED) !=
	                             COW__GATE_OPEN, 0) &&
	    !cow__gate_lets(nr, a, b, c, d))
		return -EPERM;
	return cow__syscall(nr, a, b, c, d, e, f);
}
