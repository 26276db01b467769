/* SPDX-License-Identifier: MIT */
/*
 * The table of devices: what the rest of the library asks of it
 */
#ifndef COW_TENSOR_DEVICE_H
#define COW_TENSOR_DEVICE_H

#include "cowshed-tensor.h"

/* The device's operations if it has marks, else NULL: its copies have ended on return. */
const struct cow_device_ops *cow__device_marks(struct cow_device device);

/* The operations that were registered for the device's type. NULL: none, as for the CPU. */
const struct cow_device_ops *cow__device_ops(struct cow_device device);

/* Passes the result of a device's function on. If it is an error, the sentence that the
 * device left stands; without one makes the usual sentence. The caller has called
 * cow__error_begin() before the device's function. */
int cow__device_said(const struct cow_device_ops *ops, int r);

/* Replaces the index -1 by that of the device that the thread works on. */
void cow__device_resolve(struct cow_device *device);

/* A storage in host memory that the device reaches directly. -ENOTSUP: it has none. */
int cow__device_host_new(struct cow_device device, size_t bytes,
                         struct cow_storage **ret);

#endif
