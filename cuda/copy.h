/* SPDX-License-Identifier: MIT */
/*
 * The operations of CUDA devices for the table of devices: copies and marks
 */
#ifndef COW_CUDA_COPY_H
#define COW_CUDA_COPY_H

#include "cowshed-cuda.h"

extern const struct cow_device_ops cow__cuda_ops;

#endif
