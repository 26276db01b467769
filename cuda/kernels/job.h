/* SPDX-License-Identifier: MIT */
/*
 * The argument of a kernel: C for cuda/kernels.c, CUDA C for the kernels
 *
 * A job is a copy of *units* between two places of one device. A unit is an element, or up to
 * 16 bytes that are dense and aligned on both sides. Strides are in bytes. A job is passed
 * by value, so nothing has to be freed when the kernel has run.
 *
 *      rows     units in the destination's order, for any order of the source
 *      tiles    the densest dimensions of source and destination differ: squares,
 *               transposed in shared memory
 *
 * Each kernel has two forms. One has indices and offsets of 32 bits, for jobs in which all
 * of them are below 2^31. The other one has 64 bits.
 */
#ifndef COW_CUDA_KERNELS_JOB_H
#define COW_CUDA_KERNELS_JOB_H

#include <stdint.h>

enum {
	COW__KERNEL_DIMS = 64,
	COW__KERNEL_THREADS = 256,
	COW__KERNEL_UNITS = 4,  /* of a thread, in rows */
	COW__KERNEL_TILE = 32,  /* words along each side of a tile */
	COW__KERNEL_CONJ = 1,
	COW__KERNEL_NEG = 2,
};

struct cow__kernel_dim {
	uint64_t size;
	int64_t to, from;
	/* n / size == (n * magic / 2^32 + n) >> shift, for n < 2^31. */
	uint32_t magic, shift;
};

struct cow__kernel_job {
	uint64_t to, from;   /* addresses */
	uint64_t count;      /* rows: units, or groups of elements */
	uint64_t flip[2];    /* bits of a unit that change, in rows and tiles of
	                      * units; repeated to 16 bytes */
	uint64_t tiles_x, tiles_y;
	/* x: the densest dimension of the destination, in tiles and conversions; y: that of
	 * the source, in tiles. */
	struct cow__kernel_dim x, y;
	int32_t to_type, from_type; /* enum cow_dtype, of conversions */
	int32_t to_bytes;           /* of an element */
	int32_t resolve;            /* COW__KERNEL_CONJ, NEG */
	int32_t dims, unused;
	struct cow__kernel_dim d[COW__KERNEL_DIMS]; /* the others, densest last */
};

#endif
