/* SPDX-License-Identifier: MIT */
/*
 * What starting the devices starts: allocators, the table of copies, kernels
 */
#ifndef COW_CUDA_START_H
#define COW_CUDA_START_H

#include "cuda/context.h"

/* Enters `count` probed devices everywhere. Undoes what it did on failure. */
int cow__cuda_register(struct cow__cuda *devices, int count);

/* Its parts. */
int cow__cuda_allocators_set(struct cow__cuda *devices, int count);

#endif
