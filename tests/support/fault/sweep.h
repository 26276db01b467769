/* SPDX-License-Identifier: MIT */
/*
 * Test support: one operation, with each of its kernel calls failing in turn,
 * and each object that it wants of a pool
 *
 * What holds for every operation of the library and every failure:
 *
 *   - it succeeds all the same, or it fails and has changed nothing
 *   - no byte of any storage is wrong afterwards, nor after all were rewritten
 *   - tried again without the failure, it succeeds
 *   - when all is freed, descriptors and mappings are what they were
 */
#ifndef COWSHED_TESTS_SWEEP_H
#define COWSHED_TESTS_SWEEP_H

#include "tests/support/herd.h"

/* What of an operation can fail, where it is not at least one call of the kernel: what it
 * wants of pools alone, or nothing. SWEEP_COLLAPSE: at least one call, but nothing where the
 * kernel refuses MADV_COLLAPSE. A sweep that no fault hits would prove nothing. */
enum sweep_few { SWEEP_CALLS, SWEEP_POOLS, SWEEP_NOTHING, SWEEP_COLLAPSE };

/* Most rows of a table leave it out. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct operation {
	const char *name;
	/* Makes the animals that it is about; the others stay absent. */
	void (*prepare)(struct herd *herd);
	/* 0 or -errno. On success the herd tells what bytes to expect; on
	 * failure the outputs must be untouched, which is checked here. */
	int (*call)(struct herd *herd);
	enum sweep_few few;
};

/* Errors that kernels, limits and seccomp filters give, and FAULT_POOLS; then the same for
 * good, so that what is undone fails, too. */
extern const int sweep_errors[];
enum { SWEEP_ERRORS = 9 };

/* Every n-th call fails with `error`, until n is beyond the last one. Returns
 * how many calls failed. */
int sweep(const struct operation *operation, int error);

/* For a libcheck loop from 0 to sweep_rounds(COUNT(operations)), whose body sweep_nth() is: each
 * operation with each error. With QUICK=1 in the environment there are three errors: one
 * call fails, one pool fails, all calls fail from then on. */
int sweep_rounds(size_t operations);
void sweep_nth(const struct operation *operations, int i);

/* Sets one animal, filled with a pattern that is its own. `storage` NULL: a
 * block. */
void sweep_add(struct herd *herd, enum herd_kind kind,
               struct cow_storage *storage, unsigned char *block, size_t bytes);

/* A second storage with the same bytes as the first. */
void sweep_add_clone(struct herd *herd, enum herd_kind of, enum herd_kind kind,
                     struct cow_storage *clone);

/* Maps the chunk of 2 MiB at `at`, frozen memory that nobody else reads, shared again, as a
 * slice of healing does that ends there. What is beside it in the same extent stays private. */
void sweep_thaw_chunk(const void *at);

/* Called when the animals have been freed at the end of this round, by `prepare`:
 * lets go of what it made besides them. */
void sweep_finish(void (*finish)(void));

/* An output that nobody may have touched. */
#define SWEEP_UNTOUCHED ((void *)0x5eed5eedUL)

/* Undoes what one failure taught the engine for good, and trims it: the next
 * operation finds it as new. */
void sweep_renew(void);

#endif
