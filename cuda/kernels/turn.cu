/* SPDX-License-Identifier: MIT */
/*
 * Kernels that convert and permute at once
 *
 * A square of elements is read along the source's densest dimension, converted, transposed
 * in shared memory, and written along the destination's. There are 32 by 8 threads, each
 * with four elements.
 */
#include "cuda/kernels/elements.h"

enum { TILE = COW__KERNEL_TILE, PITCH = TILE + 1 };

struct column_source {
	const char *at; /* of the first of four, 8 places of x apart */
	int64_t stride; /* from one to the next of them */
	int64_t n;      /* places of x from the first one on; 0: none */

	template <class T> __device__ __forceinline__ void get(T (&v)[4]) const
	{
		COW_UNROLL
		for (int i = 0; i < 4; i++) {
			v[i] = T();
			if (8 * i < n)
				v[i] = *(const T *)(at + i * stride);
		}
	}
};

struct square_sink {
	char *square;
	int first; /* place of the first one, 8 places apart */

	template <class T> __device__ __forceinline__ void put(const T (&v)[4]) const
	{
		COW_UNROLL
		for (int i = 0; i < 4; i++)
			((T *)square)[first + 8 * i] = v[i];
	}
};

template <class T>
static __device__ __forceinline__ void leave(const char *square, char *to, int64_t stride,
                                             int64_t n)
{
	int at = threadIdx.y * PITCH + threadIdx.x;

	COW_UNROLL
	for (int i = 0; i < 4; i++)
		if (8 * i < n)
			*(T *)(to + i * stride) = ((const T *)square)[at + 8 * i * PITCH];
}

#define KERNEL(kind, bits)                                                     \
	extern "C" __launch_bounds__(COW__KERNEL_THREADS) __global__ void      \
	cow__turn_##kind##_##bits(const cow__kernel_job j)                     \
	{                                                                      \
		__shared__ unit16 square[TILE * PITCH];                        \
		typedef form##bits::offset offset;                             \
		typedef form##bits::index index;                               \
		index b = (index)blockIdx.x;                                   \
		index column = b % (index)j.tiles_x, row = b / (index)j.tiles_x; \
		index batch = row / (index)j.tiles_y, x, y;                    \
		offset to = 0, from = 0;                                       \
		char *here;                                                    \
                                                                               \
		row -= batch * (index)j.tiles_y;                               \
		place<form##bits>(j, batch, &to, &from);                       \
		x = column * TILE + threadIdx.y;                               \
		y = row * TILE + threadIdx.x;                                  \
		convert_##kind(                                                \
			j,                                                     \
			column_source{                                         \
				(const char *)j.from + from +                  \
					(offset)x * (offset)j.x.from +         \
					(offset)y * (offset)j.y.from,          \
				8 * j.x.from,                                  \
				y < j.y.size ? (int64_t)j.x.size - (int64_t)x  \
				             : 0 },                            \
			square_sink{ (char *)square,                           \
			             (int)(threadIdx.x * PITCH + threadIdx.y) }); \
		__syncthreads();                                               \
		x = column * TILE + threadIdx.x;                               \
		y = row * TILE + threadIdx.y;                                  \
		here = (char *)j.to + to + (offset)y * (offset)j.y.to +        \
		       (offset)x * (offset)j.x.to;                             \
		leave_all((const char *)square, here, 8 * j.y.to,              \
		          x < j.x.size ? (int64_t)j.y.size - (int64_t)y : 0,   \
		          j.to_bytes);                                         \
	}

static __device__ __forceinline__ void leave_all(const char *square, char *to, int64_t stride,
                                                 int64_t n, int bytes)
{
	switch (bytes) {
	case 1:
		leave<uint8_t>(square, to, stride, n);
		break;
	case 2:
		leave<uint16_t>(square, to, stride, n);
		break;
	case 4:
		leave<uint32_t>(square, to, stride, n);
		break;
	case 8:
		leave<uint64_t>(square, to, stride, n);
		break;
	case 16:
		leave<ulonglong2>(square, to, stride, n);
		break;
	}
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
