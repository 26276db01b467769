/* SPDX-License-Identifier: MIT */
/*
 * Kernels that move units, or change their bits
 *
 * rows: a thread has four units, a block's width apart. So neighbouring threads touch
 * neighbouring places, and all four loads are under way before the first store.
 *
 * tiles: P small units are moved as one word. Words are transposed in shared memory, and the
 * units in them in registers, P by P. So both sides get whole words along their densest
 * dimension, also of bytes. A row of the square is one word longer than needed, so that the
 * words of a column lie in different banks.
 */
#include "cuda/kernels/walk.h"

static __device__ __forceinline__ uint8_t flip(uint8_t v, const cow__kernel_job &j)
{
	return (uint8_t)(v ^ j.flip[0]);
}
static __device__ __forceinline__ uint16_t flip(uint16_t v, const cow__kernel_job &j)
{
	return (uint16_t)(v ^ j.flip[0]);
}
static __device__ __forceinline__ uint32_t flip(uint32_t v, const cow__kernel_job &j)
{
	return v ^ (uint32_t)j.flip[0];
}
static __device__ __forceinline__ uint64_t flip(uint64_t v, const cow__kernel_job &j)
{
	return v ^ j.flip[0];
}
static __device__ __forceinline__ unit16 flip(unit16 v, const cow__kernel_job &j)
{
	v.lo ^= j.flip[0];
	v.hi ^= j.flip[1];
	return v;
}

struct flipped {
	template <class T>
	static __device__ __forceinline__ T of(T v, const cow__kernel_job &j)
	{
		return flip(v, j);
	}
};
/* Integers are negated modulo 2^n, as unsigned ones. */
struct negated {
	template <class T>
	static __device__ __forceinline__ T of(T v, const cow__kernel_job &)
	{
		return (T)(0 - v);
	}
};

template <class T, class F, class Change>
static __device__ __forceinline__ void rows(const cow__kernel_job &j)
{
	typename F::index i = (typename F::index)blockIdx.x *
	                              (COW__KERNEL_THREADS * COW__KERNEL_UNITS) +
	                      threadIdx.x;
	char *to[COW__KERNEL_UNITS];
	T v[COW__KERNEL_UNITS];

	COW_UNROLL
	for (int k = 0; k < COW__KERNEL_UNITS; k++) {
		typename F::index at = i + k * COW__KERNEL_THREADS;
		typename F::offset t = 0, f = 0;

		if (at < j.count) {
			place<F>(j, at, &t, &f);
			to[k] = (char *)j.to + t;
			v[k] = *(const T *)((const char *)j.from + f);
		}
	}
	COW_UNROLL
	for (int k = 0; k < COW__KERNEL_UNITS; k++)
		if (i + k * COW__KERNEL_THREADS < j.count)
			*(T *)to[k] = Change::of(v[k], j);
}

/* Transposes P by P units, and puts each P of them as a word into a row of the square. */
template <class T, class W, int P>
static __device__ __forceinline__ void put_turned(const T (&v)[P][P],
                                                  W (*rows)[COW__KERNEL_TILE + 1], int column)
{
	COW_UNROLL
	for (int k = 0; k < P; k++) {
		units<T, P> w;

		COW_UNROLL
		for (int i = 0; i < P; i++)
			w.at[i] = v[i][k];
		memcpy(&rows[k][column], &w, sizeof(w));
	}
}

/* T: a unit; W: a word, of P units. Threads: 32 by 8. */
template <class T, class W, int P, class F>
static __device__ __forceinline__ void tiles(const cow__kernel_job &j)
{
	constexpr int TILE = COW__KERNEL_TILE;
	typedef typename F::index index;
	typedef typename F::offset offset;
	__shared__ W square[TILE * P][TILE + 1];
	index b = (index)blockIdx.x;
	index column = b % (index)j.tiles_x, row = b / (index)j.tiles_x;
	index batch = row / (index)j.tiles_y;
	offset to = 0, from = 0;
	int lane = threadIdx.x;
	index x, y;

	row -= batch * (index)j.tiles_y;
	place<F>(j, batch, &to, &from);
	y = row * (TILE * P) + lane * P;
	COW_UNROLL
	for (int g = threadIdx.y; g < TILE; g += 8) {
		T v[P][P] = {};

		x = column * (TILE * P) + g * P;
		COW_UNROLL
		for (int i = 0; i < P; i++)
			if (x + i < j.x.size && y < j.y.size)
				load_units<T, P>((const char *)j.from + from +
				                         (offset)(x + i) * (offset)j.x.from +
				                         (offset)y * (offset)sizeof(T),
				                 j.y.size - y, v[i]);
		put_turned<T, W, P>(v, &square[lane * P], g);
	}
	__syncthreads();
	x = column * (TILE * P) + lane * P;
	COW_UNROLL
	for (int g = threadIdx.y; g < TILE * P; g += 8) {
		T v[P];

		y = row * (TILE * P) + g;
		memcpy(v, &square[g][lane], sizeof(v));
		COW_UNROLL
		for (int i = 0; i < P; i++)
			v[i] = flip(v[i], j);
		if (x < j.x.size && y < j.y.size)
			store_units<T, P>((char *)j.to + to + (offset)y * (offset)j.y.to +
			                          (offset)x * (offset)sizeof(T),
			                  j.x.size - x, v);
	}
}

#define KERNEL(name, ...)                                                      \
	extern "C" __launch_bounds__(COW__KERNEL_THREADS) __global__ void name( \
		const cow__kernel_job j)                                       \
	{                                                                      \
		__VA_ARGS__(j);                                                \
	}
#define KERNELS(bits)                                                          \
	KERNEL(cow__rows_1_##bits, rows<uint8_t, form##bits, flipped>)         \
	KERNEL(cow__rows_2_##bits, rows<uint16_t, form##bits, flipped>)        \
	KERNEL(cow__rows_4_##bits, rows<uint32_t, form##bits, flipped>)        \
	KERNEL(cow__rows_8_##bits, rows<uint64_t, form##bits, flipped>)        \
	KERNEL(cow__rows_16_##bits, rows<unit16, form##bits, flipped>)         \
	KERNEL(cow__negate_1_##bits, rows<uint8_t, form##bits, negated>)       \
	KERNEL(cow__negate_2_##bits, rows<uint16_t, form##bits, negated>)      \
	KERNEL(cow__negate_4_##bits, rows<uint32_t, form##bits, negated>)      \
	KERNEL(cow__negate_8_##bits, rows<uint64_t, form##bits, negated>)      \
	KERNEL(cow__tiles_1_##bits, tiles<uint8_t, uint32_t, 4, form##bits>)   \
	KERNEL(cow__tiles_2_##bits, tiles<uint16_t, uint32_t, 2, form##bits>)  \
	KERNEL(cow__tiles_4_##bits, tiles<uint32_t, uint32_t, 1, form##bits>)  \
	KERNEL(cow__tiles_8_##bits, tiles<uint64_t, uint64_t, 1, form##bits>)  \
	KERNEL(cow__tiles_16_##bits, tiles<unit16, unit16, 1, form##bits>)
KERNELS(32)
KERNELS(64)
