/* SPDX-License-Identifier: MIT */
/*
 * Device storages in messages: what share/ asks for (share/parcel.h)
 */
#ifndef COW_CUDA_PARCEL_H
#define COW_CUDA_PARCEL_H

#include "share/parcel.h"

extern const struct cow__parcel_ops cow__cuda_parcel_ops;

#endif
