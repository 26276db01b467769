/* SPDX-License-Identifier: MIT */
/*
 * The interface between the reference driver's C and its kernels' C++
 */
#ifndef TESTS_DRIVER_KERNEL_H
#define TESTS_DRIVER_KERNEL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ref_kernel {
	const char *name;
	int parameters;
	const size_t *sizes;
	void (*call)(void **parameters); /* one thread */
	struct ref_kernel *next;
};
struct ref_grid {
	unsigned grid[3], block[3];
};
/* Where the running thread is. */
struct ref_place {
	unsigned thread[3], block[3], block_size[3], grid_size[3];
};
extern struct ref_place ref_place;

void ref_kernel_add(struct ref_kernel *kernel);
/* Runs all blocks, one after the other, their threads as coroutines. */
void ref_grid_run(const struct ref_kernel *kernel, const struct ref_grid *grid,
                  void **parameters);
void ref_barrier(void);

#ifdef __cplusplus
}
#endif

#endif
