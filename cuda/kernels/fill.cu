/* SPDX-License-Identifier: MIT */
/*
 * Fills, and a first look at how kernels are written here
 *
 * A kernel is extern "C", so that the driver finds it by its name. It is compiled
 * twice: by nvcc for devices, and by the host's C++ compiler into the reference driver
 * of the tests. So it uses what tests/driver/host_cuda.h knows, and no more.
 */
#include <stddef.h>
#include <stdint.h>

/* `count` words from `to` on become `value`. Any grid will do. */
extern "C" __global__ void cow__fill_words(uint32_t *to, uint32_t value, size_t count)
{
	size_t step = (size_t)gridDim.x * blockDim.x;

	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
		to[i] = value;
}
