/* SPDX-License-Identifier: MIT */
/*
 * The cache of device memory: its history, the last events of each device in a ring
 */
#include "core/base/error.h"
#include "cuda/cache.h"
#include "memfd/map.h"
#include "memfd/wait.h"

#define MOST ((size_t)1 << 26)

static _Thread_local uint64_t user;

COW_EXPORT void
cow_cuda_annotate(uint64_t u)
{
	user = u;
}

uint64_t
cow__cuda_user(void)
{
	return user;
}

void
cow__cuda_trace_add(struct cow__cuda_memory *m, int kind, uint64_t address,
                    uint64_t bytes, struct cow__cu_stream *stream, uint64_t who)
{
	if (!m->trace_entries)
		return;
	m->trace[m->traced++ % m->trace_entries] = (struct cow_cuda_trace_entry){
		.kind = (uint32_t)kind,
		.device = m->device->index,
		.address = address,
		.bytes = bytes,
		.stream = stream,
		.time_ns = cow__now(),
		.user = who,
	};
}

/* Replaces the ring; the entries of the old one are lost. */
static void
set_ring(struct cow__cuda *d, void *ring, size_t entries, size_t bytes)
{
	struct cow__cuda_memory *m = d->memory;
	void *old;
	size_t old_bytes;

	cow__mutex_lock(&d->memory_lock);
	old = m->trace;
	old_bytes = m->trace_bytes;
	m->trace = ring;
	m->trace_entries = entries;
	m->trace_bytes = bytes;
	m->traced = 0;
	cow__mutex_unlock(&d->memory_lock);
	if (old)
		(void)cow__map_release((uintptr_t)old, old_bytes);
}

COW_EXPORT int
cow_cuda_trace_start(size_t entries)
{
	size_t bytes = cow__round_up(entries * sizeof(struct cow_cuda_trace_entry),
	                             cow__page);
	struct cow__cuda *d;
	void *rings[COW_DEVICE_INDEXES];
	int count = cow_cuda_count(), r, i;

	r = cow__cuda_get(0, &d);
	if (r < 0)
		return r;
	if (entries > MOST)
		return cow__error_number(-EINVAL,
		                         "cow_cuda_trace_start: at most # entries",
		                         MOST);
	for (i = 0; i < count && r == 0; i++) {
		rings[i] = NULL;
		if (entries)
			r = cow__map_meta(bytes, &rings[i]);
	}
	if (r < 0) {
		for (i--; i >= 0; i--)
			if (rings[i])
				(void)cow__map_release((uintptr_t)rings[i], bytes);
		return cow__error_from(r, "cow_cuda_trace_start");
	}
	for (i = 0; i < count; i++)
		if (cow__cuda_get(i, &d) == 0)
			set_ring(d, rings[i], entries, bytes);
	return 0;
}

COW_EXPORT long
cow_cuda_trace_read(int device, struct cow_cuda_trace_entry *entries, size_t max)
{
	struct cow__cuda_memory *m;
	struct cow__cuda *d;
	uint64_t n, from;
	int r = cow__cuda_get(device, &d);

	if (r < 0)
		return r;
	if (!entries && max)
		return cow__error(-EINVAL, "cow_cuda_trace_read: NULL");
	m = d->memory;
	cow__mutex_lock(&d->memory_lock);
	n = m->traced < m->trace_entries ? m->traced : m->trace_entries;
	if (n > max)
		n = max;
	from = m->traced - n;
	for (uint64_t i = 0; i < n; i++)
		entries[i] = m->trace[(from + i) % m->trace_entries];
	cow__mutex_unlock(&d->memory_lock);
	return (long)n;
}
