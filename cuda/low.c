/* SPDX-License-Identifier: MIT */
/*
 * When a device has no more memory
 *
 *   try; the program's `low` observer, try; give back what is cached, try; `out`
 *
 * Work that was queued before memory was freed may still use it, so cached memory may be in
 * use. It is claimed first, so that no thread takes it. Then the device is waited for,
 * without a lock; then the driver gets the memory. A thread that needs memory meanwhile
 * waits for that, so that it does not fail while memory is being given back.
 *
 * While any stream of the device records a graph, the device can't be waited for, because
 * that would break the recording. Then cached memory stays cached.
 */
#include "core/base/error.h"
#include "cuda/cache.h"
#include "cuda/data.h"

static const struct cow_cuda_observer *observer; /* atomic */

uint64_t
cow__cuda_limit_bytes(const struct cow__cuda *d)
{
	return __atomic_load_n(&d->memory->limit, __ATOMIC_RELAXED);
}

static int
wait_for_all(struct cow__cuda *d)
{
	int r;

	if (cow__cuda_recording(d))
		return cow__error(-EBUSY, "cached memory can't be given back while a "
		                          "stream of the device records a graph");
	r = cow__cu_error(d->cu->ctx_synchronize(), "waiting for a device");
	cow__mutex_lock(&d->memory_lock);
	d->memory->stats.sync_all++;
	cow__mutex_unlock(&d->memory_lock);
	return r;
}

/* Claims free memory, waits, gives it to the driver. `release` is held. */
static int
release_locked(struct cow__cuda *d, uint64_t *ret_bytes)
{
	struct cow__cuda_memory *m = d->memory;
	bool waiting;
	size_t n;
	int r = 0, let;

	cow__mutex_lock(&d->memory_lock);
	cow__cuda_drain(m, true);
	waiting = m->waiting.first != NULL;
	cow__mutex_unlock(&d->memory_lock);
	if (waiting)
		r = wait_for_all(d);
	if (r < 0)
		return r;
	cow__mutex_lock(&d->memory_lock);
	if (waiting)
		cow__cuda_drain(m, true);
	n = cow__cuda_claim(m);
	cow__mutex_unlock(&d->memory_lock);
	if (n)
		r = wait_for_all(d);
	cow__mutex_lock(&d->memory_lock);
	let = cow__cuda_let_go(m, r < 0, ret_bytes);
	cow__mutex_unlock(&d->memory_lock);
	return r < 0 ? r : let;
}

static int
release(struct cow__cuda *d)
{
	uint64_t bytes;
	int r;

	cow__mutex_lock(&d->memory->release);
	(void)cow__cuda_data_collect(d);
	r = release_locked(d, &bytes);
	/* The device was waited for, so data that were leaving may be free. */
	(void)cow__cuda_data_collect(d);
	cow__cuda_pieces_retry(d);
	cow__mutex_unlock(&d->memory->release);
	return r;
}

/* ---- The sentence ------------------------------------------------------------------ */

/* "1.50 GiB" */
static void
add_bytes(uint64_t bytes)
{
	static const char *const units[] = { " KiB", " MiB", " GiB", " TiB", " EiB" };
	uint64_t hundredths;
	unsigned u = 0;

	/* The number of units times 100 must fit 64 bits. */
	while (u < 3 && bytes >> (10 * (u + 2)))
		u++;
	if (bytes >> 60) {
		cow__error_add("over ");
		cow__error_add_number((int64_t)(bytes >> 60));
		cow__error_add(units[4]);
		return;
	}
	hundredths = (bytes >> (10 * u)) * 100 / 1024;
	cow__error_add_number((int64_t)(hundredths / 100));
	cow__error_add(hundredths % 100 < 10 ? ".0" : ".");
	cow__error_add_number((int64_t)(hundredths % 100));
	cow__error_add(units[u]);
}

static void
add_sum(const char *before, uint64_t bytes, const char *after)
{
	cow__error_add(before);
	add_bytes(bytes);
	cow__error_add(after);
}

struct sums {
	uint64_t free, limit, made, used, waiting, cached;
	bool know_free, recording;
};

static const char *
advice(const struct cow__cuda *d, size_t bytes, const struct sums *s)
{
	if (s->limit < d->total_bytes && s->made + bytes > s->limit)
		return " cow_cuda_set_fraction() set that limit.";
	if (s->recording)
		return " What is cached can't be given back while a stream of the "
		       "device records a graph.";
	if (s->cached >= bytes)
		return " The cached parts lie between blocks in use: make large "
		       "blocks first, or of fewer sizes.";
	if (s->know_free && s->made < (d->total_bytes - s->free) / 2)
		return " The rest is other processes' (nvidia-smi names them).";
	return " Free some of it, or do the work in smaller parts.";
}

static int
say(struct cow__cuda *d, size_t bytes, const struct sums *s)
{
	cow__error_begin();
	cow__error_add("CUDA device ");
	cow__error_add_number(d->index);
	add_sum(" is out of memory: tried to get ", bytes, ".");
	add_sum(" Of its ", d->total_bytes, "");
	if (s->know_free)
		add_sum(", ", s->free, " are free");
	add_sum(". This process may have ", s->limit, "");
	add_sum(" and has ", s->made, ": ");
	add_sum("", s->used, " in use, ");
	if (s->waiting)
		add_sum("", s->waiting, " waiting for streams, ");
	add_sum("", s->cached, " cached but unused.");
	cow__error_add(advice(d, bytes, s));
	return -ENOMEM;
}

static int
out_of_memory(struct cow__cuda *d, size_t bytes, bool recording)
{
	const struct cow_cuda_observer *o =
		__atomic_load_n(&observer, __ATOMIC_ACQUIRE);
	struct cow__cuda_memory *m = d->memory;
	struct sums s = { .limit = cow__cuda_limit_bytes(d),
		          .made = cow__cuda_made_bytes(d),
		          .recording = recording };
	size_t now = 0, total;
	uint64_t active;

	s.know_free = d->cu->mem_get_info(&now, &total) == COW_CU_SUCCESS;
	s.free = now;
	cow__mutex_lock(&d->memory_lock);
	m->stats.ooms++;
	/* A piece that is mapped at several addresses counts once. */
	s.used = m->stats.allocated_bytes[COW_CUDA_ALL].current -
	         m->data.allocated + m->data.reserved;
	active = m->stats.active_bytes[COW_CUDA_ALL].current - m->data.active +
	         m->data.reserved;
	cow__cuda_trace_add(m, COW_CUDA_OOM, 0, bytes, NULL, cow__cuda_user());
	cow__mutex_unlock(&d->memory_lock);
	s.waiting = active > s.used ? active - s.used : 0;
	s.cached = s.made > active ? s.made - active : 0;
	if (o && o->out)
		o->out(o->user, d->index, bytes, s.made, s.free);
	return say(d, bytes, &s);
}

/* ---- The steps --------------------------------------------------------------------- */

static bool
observer_freed(struct cow__cuda *d, size_t bytes)
{
	const struct cow_cuda_observer *o =
		__atomic_load_n(&observer, __ATOMIC_ACQUIRE);

	return o && o->low && o->low(o->user, d->index, bytes);
}

int
cow__cuda_low(struct cow__cuda *d, size_t bytes, struct cow__cu_stream *stream,
              cow__cuda_try_fn *try_, void *arg)
{
	int r = try_(d, arg);
	bool recording;

	if (cow__likely(r != -ENOMEM))
		return r;
	if (observer_freed(d, bytes)) {
		r = try_(d, arg);
		if (r != -ENOMEM)
			return r;
	}
	/* A stream that records can't be waited for. */
	recording = cow__cuda_capturing(d, stream);
	if (!recording) {
		r = release(d);
		recording = r == -EBUSY;
		if (r < 0 && !recording)
			return r;
		cow__mutex_lock(&d->memory_lock);
		d->memory->stats.retries++;
		cow__mutex_unlock(&d->memory_lock);
		r = try_(d, arg);
		if (r != -ENOMEM)
			return r;
	}
	return out_of_memory(d, bytes, recording);
}

/* ---- For the program --------------------------------------------------------------- */

COW_EXPORT int
cow_cuda_observe(const struct cow_cuda_observer *o)
{
	if (o && o->size < sizeof(*o))
		return cow__error(-EINVAL, "cow_cuda_observer: size is not set");
	__atomic_store_n(&observer, o, __ATOMIC_RELEASE);
	return 0;
}

COW_EXPORT int
cow_cuda_empty_cache(int device)
{
	int first = device < 0 ? 0 : device;
	int last = device < 0 ? cow_cuda_count() - 1 : device;
	struct cow__cuda *d;
	int r, error = 0;

	if (device < -1 || last < 0)
		return cow__cuda_get(device, &d);
	/* After a failure the other devices still give theirs back. */
	for (int i = first; i <= last; i++) {
		r = cow__cuda_get(i, &d);
		if (r == 0)
			r = cow__cuda_enter(d);
		if (r == 0) {
			r = release(d);
			cow__cuda_leave(d);
		}
		if (error == 0)
			error = r;
	}
	return error;
}

COW_EXPORT int
cow_cuda_set_fraction(int device, double fraction)
{
	struct cow__cuda *d;
	int r = cow__cuda_get(device, &d);

	if (r < 0)
		return r;
	if (!(fraction >= 0 && fraction <= 1))
		return cow__error(-EINVAL,
		                  "cow_cuda_set_fraction: not a number from 0 to 1");
	__atomic_store_n(&d->memory->limit,
	                 (uint64_t)(fraction * (double)d->total_bytes),
	                 __ATOMIC_RELAXED);
	return 0;
}
