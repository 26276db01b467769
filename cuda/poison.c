/* SPDX-License-Identifier: MIT */
/*
 * Poison: fills and checks host memory of copies. See the header.
 */
#include "cuda/poison.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/options.h"
#include "core/base/pool.h"

static struct cow__pool watches = {
	.object_bytes = sizeof(struct cow__cuda_watch)
};

/* Between a thread's copy and its mark. */
static _Thread_local struct {
	const void *host;
	size_t bytes;
} reads;

static bool
is_on(void)
{
	return cow__unlikely(__atomic_load_n(&cow__option_cuda_poison,
	                                     __ATOMIC_RELAXED));
}

COW_EXPORT int
cow_cuda_set_poison(bool on)
{
	__atomic_store_n(&cow__option_cuda_poison, on, __ATOMIC_RELAXED);
	return 0;
}

/* FNV, by words. */
static uint64_t
sum_of(const void *host, size_t bytes)
{
	uint64_t h = 0xcbf29ce484222325, x = 0;
	const char *p = host;

	for (; bytes >= 8; bytes -= 8, p += 8) {
		memcpy(&x, p, 8);
		h = (h ^ x) * 0x100000001b3;
		h ^= h >> 29;
	}
	x = 0;
	memcpy(&x, p, bytes);
	return (h ^ x) * 0x100000001b3;
}

void
cow__cuda_poison_reads(const void *host, size_t bytes)
{
	if (!is_on())
		return;
	reads.host = host;
	reads.bytes = bytes;
}

int
cow__cuda_poison_fills(struct cow__cuda *d, struct cow__cu_stream *stream,
                       void *host, size_t bytes)
{
	int r;

	if (!is_on())
		return 0;
	r = cow__cu_error(d->cu->stream_synchronize(stream),
	                  "waiting for a stream, to poison");
	if (r == 0)
		memset(host, 0xa5, bytes);
	return r;
}

struct cow__cuda_watch *
cow__cuda_watch_new(struct cow__cu_event *mark)
{
	struct cow__cuda_watch *w = cow__pool_take(&watches);

	if (w) {
		*w = (struct cow__cuda_watch){ .mark = mark };
		if (cow__unlikely(reads.host != NULL)) {
			w->host = reads.host;
			w->bytes = reads.bytes;
			w->sum = sum_of(reads.host, reads.bytes);
		}
	}
	reads.host = NULL;
	return w;
}

void
cow__cuda_watch_free(struct cow__cuda_watch *w)
{
	cow__pool_give(&watches, w);
}

int
cow__cuda_watch_check(struct cow__cuda_watch *w)
{
	const void *host = w->host;

	w->host = NULL;
	if (cow__likely(!host) || sum_of(host, w->bytes) == w->sum)
		return 0;
	return cow__error(-EILSEQ, "host memory was changed while a copy read it");
}
