/* SPDX-License-Identifier: MIT */
/*
 * Kernels: strided copies on one device
 *
 * The machine code is data of this library (cuda/kernels/). It is there if nvcc was there
 * when the library was built. The first use of a kernel loads its module into the device's
 * context. If there is no code for a device, or none at all, there are no kernels: then
 * copies that the driver's own calls can't do are staged through the host.
 */
#ifndef COW_CUDA_KERNELS_H
#define COW_CUDA_KERNELS_H

#include "cuda/context.h"
#include "cuda/kernels/job.h"
#include "tensor/strided.h"

/* Called once for each device, by cow_cuda_start(): sets d->kernels if there is code. Loads
 * nothing. */
int cow__cuda_kernels_start(struct cow__cuda *d);

/* Where the kernels come from: enum cow_cuda_kernels. The driver must be started. */
int cow__cuda_kernels_kind(void);

/* Queues a strided copy on the stream, of a simplified job: by one of the driver's copies if
 * that does it well, else by one kernel. Entered. -ENOTSUP: neither can do it. */
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

/* Launches kernel number `which` of a family; for ROWS that is the logarithm of the unit's
 * bytes. `form`: 0: indices of 32 bits; 1: of 64. */
int cow__cuda_launch(struct cow__cuda *d, struct cow__cu_stream *stream,
                     enum cow__cuda_family family, int which, int form,
                     uint64_t blocks, const struct cow__kernel_job *job);

#endif
