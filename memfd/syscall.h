/* SPDX-License-Identifier: MIT */
/*
 * The one way into the kernel, for the gate (memfd/gate.h) and below it
 *
 * All other files call by name (memfd/sys.h), through the gate.
 */
#ifndef COW_MEMFD_SYSCALL_H
#define COW_MEMFD_SYSCALL_H

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* Visible, since the shim's syscall() ends here, too. */
__attribute__((visibility("default"))) long
cow__syscall(long nr, long a, long b, long c, long d, long e, long f);

#endif
