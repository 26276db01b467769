/* SPDX-License-Identifier: MIT */
/*
 * Kernels that only the tests of the reference driver need
 */
#include <stddef.h>
#include <stdint.h>

/* Turns the words of each block around, through shared memory: wrong without a
 * barrier that works. */
extern "C" __global__ void ref_turn_around(uint32_t *words)
{
	__shared__ uint32_t place[1024];
	unsigned n = blockDim.x, i = threadIdx.x;
	uint32_t *mine = words + (size_t)blockIdx.x * n;

	place[i] = mine[i];
	__syncthreads();
	mine[i] = place[n - 1 - i];
	__syncthreads();
	place[i] = 0;
}
