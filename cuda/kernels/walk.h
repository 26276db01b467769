/* SPDX-License-Identifier: MIT */
/*
 * For all kernels: places of units, and loads and stores of several units at once
 */
#ifndef COW_CUDA_KERNELS_WALK_H
#define COW_CUDA_KERNELS_WALK_H

#include "cuda/kernels/job.h"

#include <stddef.h>
#include <string.h>

#if defined(__CUDACC__)
#define COW_UNROLL _Pragma("unroll")
#else
#define COW_UNROLL
#endif

struct alignas(16) unit16 {
	uint64_t lo, hi;
};

/* The two forms: the types of indices and offsets. */
struct form32 {
	typedef uint32_t index;
	typedef int32_t offset;
};
struct form64 {
	typedef uint64_t index;
	typedef int64_t offset;
};

static __device__ __forceinline__ uint32_t divide(uint32_t n, const cow__kernel_dim &d)
{
	return ((uint32_t)((uint64_t)n * d.magic >> 32) + n) >> d.shift;
}

static __device__ __forceinline__ uint64_t divide(uint64_t n, const cow__kernel_dim &d)
{
	return n / d.size;
}

/* Finds the place of number `i` in the outer dimensions. */
template <class F>
static __device__ __forceinline__ void place(const cow__kernel_job &j, typename F::index i,
                                             typename F::offset *to, typename F::offset *from)
{
	typedef typename F::offset offset;

	for (int d = j.dims; d-- > 0;) {
		typename F::index q = 0, at = i;

		if (d > 0) {
			q = divide(i, j.d[d]);
			at = i - q * (typename F::index)j.d[d].size;
		}
		*to += (offset)at * (offset)j.d[d].to;
		*from += (offset)at * (offset)j.d[d].from;
		i = q;
	}
}

/* `n` of `N` units that lie side by side. If n is N and they are aligned, they are loaded or
 * stored at once. */
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) units {
	T at[N];
};

template <class T, int N>
static __device__ __forceinline__ bool together(const void *p)
{
	return ((uintptr_t)p & (alignof(units<T, N>) - 1)) == 0;
}

template <class T, int N>
static __device__ __forceinline__ void load_units(const char *p, uint64_t n, T (&v)[N])
{
	if (n >= N && together<T, N>(p)) {
		units<T, N> u = *(const units<T, N> *)p;

		COW_UNROLL
		for (int i = 0; i < N; i++)
			v[i] = u.at[i];
		return;
	}
	COW_UNROLL
	for (int i = 0; i < N; i++) {
		v[i] = T();
		if ((uint64_t)i < n)
			v[i] = ((const T *)p)[i];
	}
}

template <class T, int N>
static __device__ __forceinline__ void store_units(char *p, uint64_t n, const T (&v)[N])
{
	if (n >= N && together<T, N>(p)) {
		units<T, N> u;

		COW_UNROLL
		for (int i = 0; i < N; i++)
			u.at[i] = v[i];
		*(units<T, N> *)p = u;
		return;
	}
	COW_UNROLL
	for (int i = 0; i < N; i++)
		if ((uint64_t)i < n)
			((T *)p)[i] = v[i];
}

#endif
