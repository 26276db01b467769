/* SPDX-License-Identifier: MIT */
/*
 * The CUDA driver, loaded when it is first needed
 *
 *     program --> cow__cu_start() --> dlopen("libcuda.so.1") --> table of calls
 *
 * Nothing of the driver is linked. A process that never asks for a device loads
 * nothing; a machine without a driver gets one clear error. The table is filled once
 * and never changes or goes away: whoever got it may keep it, but must ask
 * cow__cu_start() again after every point where its thread may have become a child
 * of fork(), and the cheap way is to ask always. It costs two loads.
 *
 * The driver does not survive fork(): its threads are gone, its mappings are not
 * inherited. A child of a process that had started it gets -ECHILD from
 * cow__cu_start() and makes no call. (fork() before the first use is fine.)
 *
 * What the driver answers, a `enum cow__cu_result`, goes no further than this
 * folder: cow__cu_error() turns it into one of our codes and a sentence.
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
 * The driver's calls; loads and initializes it the first time. Any thread, never with
 * a lock of ours held: loading a library allocates. What came out the first time is
 * what comes out every time. -ENODEV: no driver, or no device in it; -ENOSYS: a
 * driver too old for us; -ECHILD: started before a fork(); others as of
 * cow__cu_error(). Each leaves a sentence.
 */
int cow__cu_start(const struct cow__cu **ret);

/* 0, or the code for `result`, with a sentence of `what` failed, the driver's name
 * for it and its words. */
int cow__cu_error(enum cow__cu_result result, const char *what);

/* After cow__cu_start() succeeded: where the driver was loaded from, the version
 * that it speaks (12040 is 12.4), and the kernels that it brings itself: a driver for
 * tests has no use for machine code. NULL: none, as real ones. */
const char *cow__cu_path(void);
int cow__cu_version(void);
const void *cow__cu_own_kernels(void);

#endif
