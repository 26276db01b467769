/* SPDX-License-Identifier: MIT */
/*
 * Names that a library exports
 *
 * All code is compiled with hidden visibility. A function that others call
 * carries COW_EXPORT, and a map file beside the library's code lists it:
 * core/libcowshed.map, tensor/libcowshed-tensor.map, cuda/libcowshed-cuda.map.
 * `make lint` compares both.
 */
#ifndef COW_MEMFD_EXPORT_H
#define COW_MEMFD_EXPORT_H

#define COW_EXPORT __attribute__((visibility("default")))

#endif
