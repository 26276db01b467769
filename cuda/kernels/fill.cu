/* SPDX-License-Identifier: MIT */
/*
 * Fills; the simplest kernel, as an example for the others
 *
 * A kernel is extern "C", so that the driver finds it by its name. It is compiled twice: by
 * nvcc for devices, and by the host's C++ compiler for the reference driver of the tests.
 * So it uses only what tests/driver/host_cuda.h has.
 */
#include <stddef.h>
#include <stdint.h>

/* Sets `count` words from `to` on to `value`. The grid may have any size. */
extern "C" __global__ void cow__fill_words(uint32_t *to, uint32_t value, size_t count)
{
	size_t step = (size_t)gridDim.x * blockDim.x;

	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
		to[i] = value;
}
