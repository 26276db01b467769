/* SPDX-License-Identifier: MIT */
/*
 * Starting the devices: registers allocators, the table of copies, and kernels
 */
#ifndef COW_CUDA_START_H
#define COW_CUDA_START_H

#include "cuda/context.h"

/* Registers `count` probed devices with the other parts of the library. A failure undoes all
 * of it. */
int cow__cuda_register(struct cow__cuda *devices, int count);

/* The part of it that registers the allocators. */
int cow__cuda_allocators_set(struct cow__cuda *devices, int count);

#endif
