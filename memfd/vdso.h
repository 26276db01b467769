/* SPDX-License-Identifier: MIT */
/*
 * The clock that the kernel maps into each process
 *
 * libc's clock_gettime() is not called. Another library may define that name: its code may need
 * thread-local data, which the helper lacks, and may count a time of its own (libfaketime).
 */
#ifndef COW_MEMFD_VDSO_H
#define COW_MEMFD_VDSO_H

#include <time.h>

/* The kernel's function, which makes no system call; NULL: there is none, as under valgrind. It
 * returns 0 or -errno. The first call reads the image, in a microsecond, and must come from a
 * thread of libc's. */
int (*cow__vdso_clock(void))(clockid_t, struct timespec *);

#endif
