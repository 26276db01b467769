/* SPDX-License-Identifier: MIT */
/*
 * Kernels that convert, in the destination's order
 *
 * A thread has four neighbours along the destination's densest dimension. If they are dense
 * and aligned on a side, they are loaded or stored at once there.
 */
#include "cuda/kernels/elements.h"

struct row_source {
	const char *at;
	int64_t stride;
	uint64_t n;

	template <class T> __device__ __forceinline__ void get(T (&v)[4]) const
	{
		if (stride == (int64_t)sizeof(T)) {
			load_units<T, 4>(at, n, v);
			return;
		}
		COW_UNROLL
		for (int i = 0; i < 4; i++) {
			v[i] = T();
			if ((uint64_t)i < n)
				v[i] = *(const T *)(at + i * stride);
		}
	}
};

struct row_sink {
	char *at;
	int64_t stride;
	uint64_t n;

	template <class T> __device__ __forceinline__ void put(const T (&v)[4]) const
	{
		if (stride == (int64_t)sizeof(T)) {
			store_units<T, 4>(at, n, v);
			return;
		}
		COW_UNROLL
		for (int i = 0; i < 4; i++)
			if ((uint64_t)i < n)
				*(T *)(at + i * stride) = v[i];
	}
};

/* tiles_x: groups of four along x, whose number x.magic divides by. */
#define KERNEL(kind, bits)                                                     \
	extern "C" __launch_bounds__(COW__KERNEL_THREADS) __global__ void      \
	cow__convert_##kind##_##bits(const cow__kernel_job j)                  \
	{                                                                      \
		typedef form##bits::offset offset;                             \
		form##bits::index i =                                          \
			(form##bits::index)blockIdx.x * COW__KERNEL_THREADS +  \
			threadIdx.x;                                           \
		form##bits::index outer, x;                                    \
		offset to = 0, from = 0;                                       \
                                                                               \
		if (i >= j.count)                                              \
			return;                                                \
		outer = divide(i, j.y);                                        \
		x = (i - outer * (form##bits::index)j.tiles_x) * 4;            \
		place<form##bits>(j, outer, &to, &from);                       \
		to += (offset)x * (offset)j.x.to;                              \
		from += (offset)x * (offset)j.x.from;                          \
		convert_##kind(                                                \
			j,                                                     \
			row_source{ (const char *)j.from + from, j.x.from,     \
			            j.x.size - x },                            \
			row_sink{ (char *)j.to + to, j.x.to, j.x.size - x });  \
	}
KERNEL(I, 32)
KERNEL(U, 32)
KERNEL(F, 32)
KERNEL(D, 32)
KERNEL(CF, 32)
KERNEL(CD, 32)
KERNEL(I, 64)
KERNEL(U, 64)
KERNEL(F, 64)
KERNEL(D, 64)
KERNEL(CF, 64)
KERNEL(CD, 64)
