/* SPDX-License-Identifier: MIT */
/*
 * Storages on the reference driver's devices: see the header.
 */
#include "tests/support/gpu.h"

#include <stdlib.h>

void gpu_start(void)
{
	driver_start();
	ok(cow_cuda_start());
}

struct cow_storage *gpu_new(size_t bytes, size_t piece, unsigned char value)
{
	struct cow_cuda_options o = {
		.size = sizeof(o),
		.backing = piece ? COW_CUDA_PIECES : COW_CUDA_SINGLE,
		.piece = piece,
	};
	struct cow_storage *s;

	if (piece == GPU_CACHED)
		o.backing = (uint32_t)(o.piece = COW_CUDA_CACHED);
	ok(cow_cuda_storage_new(0, bytes, &o, &s));
	gpu_fill(s, 0, bytes, value);
	return s;
}

static struct cow__cu_stream *current(void)
{
	cow_cuda_stream s;

	ok(cow_cuda_stream_get(0, &s));
	return s;
}

void gpu_fill(struct cow_storage *s, size_t offset, size_t bytes, unsigned char value)
{
	unsigned char *p = mut_range(s, offset, bytes, COW_WRITE_AUTO);

	cu_ok(cu->set_8((uintptr_t)p + offset, value, bytes, current()));
}

bool gpu_is(const struct cow_storage *s, size_t offset, size_t bytes, unsigned char value)
{
	unsigned char *host;
	bool same;

	cu_ok(cu->host_alloc((void **)&host, bytes, COW_CU_HOST_PORTABLE));
	cu_ok(cu->copy_to_host(host, (uintptr_t)data(s) + offset, bytes, current()));
	cu_ok(cu->stream_synchronize(current()));
	same = first_not(host, bytes, value) == bytes;
	cu_ok(cu->host_free(host));
	return same;
}

cow_cuda_stream gpu_stream(void)
{
	cow_cuda_stream s;

	ok(cow_cuda_stream_new(0, 0, &s));
	return s;
}

void gpu_stream_end(cow_cuda_stream stream)
{
	cu_ok(cu->stream_synchronize(stream));
	cu_ok(cu->stream_destroy(stream));
}

struct ref_usage gpu_usage(void)
{
	struct ref_usage u;

	ref.usage(&u);
	return u;
}

uint64_t gpu_waits(void)
{
	return ref.calls("cuStreamSynchronize") + ref.calls("cuCtxSynchronize") +
	       ref.calls("cuEventSynchronize") + ref.implicit_waits();
}
