/* SPDX-License-Identifier: MIT */
/*
 * Functions of the reference driver for tests, beyond those of a driver
 *
 * tests/support/driver.h finds them by dlsym() in the loaded driver. Any thread may call them
 * at any time.
 */
#ifndef TESTS_DRIVER_CONTROL_H
#define TESTS_DRIVER_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ref_setting {
	/* 1 (default): behaviour that is undefined on a device ends the process, with a
	 * sentence on stderr. 0: it gives the most likely error. */
	REF_STRICT,
	/* 0: an asynchronous copy from or to memory that is not pinned counts as such a
	 * mistake. 1 (default): it works as documented, which is synchronously. */
	REF_PAGEABLE,
	REF_DELAY_US,   /* work starts up to so much late (2000) */
	REF_MEMORY,     /* bytes of each device */
	REF_MAX_EVENTS, /* more are CUDA_ERROR_OUT_OF_MEMORY */
	REF_MAX_HANDLES,
	/* 1: no work is executed before a call waits for it. */
	REF_HOLD,
	REF_SETTINGS
};
void cow_ref_set(enum ref_setting setting, long value);

/* The n-th call of this name from now on (1: the next) gives `code`, and has no effect.
 * n = 0: forget it. Names are cuGetProcAddress()'s. -1: no such call. */
int cow_ref_fail(const char *name, unsigned long n, int code);

/* Calls so far; UINT64_MAX: no such call. */
uint64_t cow_ref_calls(const char *name);

/* How often a call that does not say so waited for a device: cuMemFree, pageable
 * copies, ... */
uint64_t cow_ref_implicit_waits(void);

struct ref_usage {
	size_t pending;      /* work that has not been executed */
	size_t bytes;        /* of physical memory that this process made */
	size_t handles;      /* of physical memory */
	size_t mappings, reservations, streams, events, registered;
};
void cow_ref_usage(struct ref_usage *ret);

/* The context of a device fails: every call gives `code` from now on. */
void cow_ref_poison(int device, int code);

/* Bytes of device memory as they are now, without any order. -1: not mapped. */
int cow_ref_peek(unsigned long long ptr, void *ret, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
