/* SPDX-License-Identifier: MIT */
/*
 * What the table of devices gets: copies of CUDA devices, and their marks
 */
#ifndef COW_CUDA_COPY_H
#define COW_CUDA_COPY_H

#include "cowshed-cuda.h"

extern const struct cow_device_ops cow__cuda_ops;

#endif
