/* SPDX-License-Identifier: MIT */
/*
 * Does the kernel or a device keep pages of this process?
 */
#ifndef COW_MEMFD_PINS_H
#define COW_MEMFD_PINS_H

#include <stdbool.h>

/*
 * May the kernel or a device write this process's memory behind the page tables? True if the
 * process holds descriptors of io_uring, RDMA, GPUs, accelerators, cameras, vfio, vhost, AF_XDP
 * or other devices whose drivers keep pages, of a file opened with O_DIRECT, or for writing to
 * /proc/PID/mem. True also if a shortage (-EMFILE, -ENFILE, -ENOMEM) keeps it from looking. Such
 * memory must not be frozen: the I/O would land in the frozen page. It must not be thawed: copied
 * bytes may be outdated. False without /proc. A ring whose descriptor was closed is not seen; it
 * works on by a registered number or its mapping.
 */
bool cow__pins_memory(void);

/* More devices that do, by the beginnings of their names, with colons between: "/dev/mine:/dev/x".
 * It replaces what an earlier call named; `apply` false: it only looks at the names. -EINVAL: a name
 * does not begin with a slash, or all of them have more than 254 bytes. */
int cow__pins_name(const char *names, bool apply);

#endif
