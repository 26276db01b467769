/* SPDX-License-Identifier: MIT */
/*
 * Kernels: strided copies on one device
 *
 * The machine code is data of this library (cuda/kernels/), made where nvcc was when it
 * was built. A module is loaded into a device's context when one of its kernels is
 * first needed. A device that no code is for, and a library without any, has no
 * kernels: what the driver's copies can't say is staged through the host then.
 */
#ifndef COW_CUDA_KERNELS_H
#define COW_CUDA_KERNELS_H

#include "cuda/context.h"
#include "cuda/kernels/job.h"
#include "tensor/strided.h"

/* Once for each device, in cow_cuda_start(): sets d->kernels if there is code. Loads
 * nothing. */
int cow__cuda_kernels_start(struct cow__cuda *d);

/* Where they come from: enum cow_cuda_kernels. The driver was started. */
int cow__cuda_kernels_kind(void);

/* A strided copy on the stream, of a simplified job: one of the driver's copies where
 * it can say it well, else one kernel. Entered. -ENOTSUP: neither can. */
int cow__cuda_strided(struct cow__cuda *d, struct cow__cu_stream *stream,
                      const struct cow__strided *job);

/* ---- kernels.c, for strided.c ---- */

enum cow__cuda_family {
	COW__CUDA_ROWS,    /* by bytes of a unit */
	COW__CUDA_NEGATE,
	COW__CUDA_TILES,
	COW__CUDA_CONVERT, /* by kind of the source's type: I U F D CF CD */
	COW__CUDA_TURN,
	COW__CUDA_FAMILIES,
};

/* Number `which` of a family: of unit bytes their logarithm. `form`: 0: 32 bits; 1: 64.
 * `threads`: of a block, along x and y. */
int cow__cuda_launch(struct cow__cuda *d, struct cow__cu_stream *stream,
                     enum cow__cuda_family family, int which, int form,
                     uint64_t blocks, const struct cow__kernel_job *job);

#endif
