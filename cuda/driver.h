/* SPDX-License-Identifier: MIT */
/*
 * The CUDA driver, loaded when it is first needed
 *
 *     program --> cow__cu_start() --> dlopen("libcuda.so.1") --> table of calls
 *
 * Nothing of the driver is linked. A process that asks for no device loads nothing. On a
 * machine without a driver the result is one error. The table is filled once, never
 * changes and never goes away. A caller may keep it. After every point at which its
 * process may have become a child of fork(), it must call cow__cu_start() again. That
 * costs two loads, so callers do it always.
 *
 * The driver does not survive fork(): the child has none of its threads and mappings. A
 * child of a process that had started the driver gets -ECHILD from cow__cu_start(), and
 * makes no call. A fork() before the first use does no harm.
 *
 * Only this folder sees a result of the driver, an `enum cow__cu_result`. cow__cu_error()
 * turns it into one of our codes and a sentence.
 */
#ifndef COW_CUDA_DRIVER_H
#define COW_CUDA_DRIVER_H

#include <stdbool.h>

#include "cuda/abi.h"

#define CALL(need, member, name, symbol, version, parameters)                  \
	enum cow__cu_result(*member) parameters;
struct cow__cu {
#include "cuda/calls.h"
};
#undef CALL

/*
 * The table of the driver's calls. The first call loads and initializes the driver; all
 * later ones give the same result. Any thread may call it, but with no lock of ours held,
 * because loading a library allocates. -ENODEV: no driver, or no device in it; -ENOSYS: the
 * driver is too old; -ECHILD: it was started before a fork(); else as cow__cu_error(). Each
 * leaves a sentence.
 */
int cow__cu_start(const struct cow__cu **ret);

/* 0, or the code for `result`. The sentence has `what` failed, the driver's name for the
 * result, and its description. */
int cow__cu_error(enum cow__cu_result result, const char *what);

/* After cow__cu_start() succeeded: the path that the driver was loaded from; its version
 * (12040 is 12.4); and the kernels that it has itself. Only a driver for tests has kernels,
 * because it can't run machine code for devices; of a real one this is NULL. */
const char *cow__cu_path(void);
int cow__cu_version(void);
const void *cow__cu_own_kernels(void);

#endif
