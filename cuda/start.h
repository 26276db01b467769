/* SPDX-License-Identifier: MIT */
/*
 * Starting the devices: registers allocators, the table of copies, and kernels
 */
#ifndef COW_CUDA_START_H
#define COW_CUDA_START_H

#include "cuda/context.h"

/* The part of it that registers the allocators (cuda/allocator.c). */
int cow__cuda_allocators_set(struct cow__cuda *devices, int count);

#endif
