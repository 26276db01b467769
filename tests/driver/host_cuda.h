/* SPDX-License-Identifier: MIT */
/*
 * CUDA C for the host: lets a C++ compiler compile a kernel's source
 *
 * It is included before the source. The threads of a block are coroutines of one thread of
 * the host (fiber.c), and kernels run one at a time. So the built-in variables are plain
 * variables, and __shared__ ones are static. Dynamic shared memory, warps (shuffles, votes)
 * and textures are missing.
 */
#ifndef TESTS_DRIVER_HOST_CUDA_H
#define TESTS_DRIVER_HOST_CUDA_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/driver/kernel.h"

/* Looked for in the preprocessed source, to know which kernels there are. */
#ifdef COWREF_LIST
#define __global__ COWREF_KERNEL
#else
#define __global__
#endif
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __syncthreads() ref_barrier()

struct uint3 {
	unsigned x, y, z;
};
struct dim3 {
	unsigned x, y, z;
};
struct alignas(8) uint2 {
	unsigned x, y;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
	unsigned long long x, y;
};
static inline uint2 make_uint2(unsigned x, unsigned y)
{
	return { x, y };
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
	return { x, y, z, w };
}

#define threadIdx (*(const uint3 *)ref_place.thread)
#define blockIdx (*(const uint3 *)ref_place.block)
#define blockDim (*(const dim3 *)ref_place.block_size)
#define gridDim (*(const dim3 *)ref_place.grid_size)

template <class T> static inline T __ldg(const T *p)
{
	return *p;
}
template <class T> static inline T atomicAdd(T *p, T v)
{
	T old = *p;

	*p = old + v;
	return old;
}
static inline unsigned __float_as_uint(float f)
{
	unsigned u;

	memcpy(&u, &f, 4);
	return u;
}
static inline float __uint_as_float(unsigned u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* ---- What the driver knows a kernel by ------------------------------------ */

template <class... A, size_t... I>
static inline void ref_apply(void (*f)(A...), void **p, std::index_sequence<I...>)
{
	f(*static_cast<A *>(p[I])...);
}
template <class... A> static inline void ref_call(void (*f)(A...), void **p)
{
	ref_apply(f, p, std::index_sequence_for<A...>());
}
template <class... A> struct ref_sizes {
	static constexpr size_t of[] = { sizeof(A)..., 0 };
};
template <class... A>
static inline ref_kernel ref_describe(void (*)(A...), const char *name, void (*call)(void **))
{
	return { name, int(sizeof...(A)), ref_sizes<A...>::of, call, nullptr };
}
#define REF_KERNEL(name)                                                       \
	static ref_kernel ref_kernel_##name = ref_describe(                    \
		name, #name, [](void **p) { ref_call(name, p); });             \
	static const bool ref_added_##name =                                   \
		(ref_kernel_add(&ref_kernel_##name), true);

#endif
