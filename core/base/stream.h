/* SPDX-License-Identifier: MIT */
/*
 * Stores past the caches
 *
 * An ordinary store to memory that is in no cache reads it first. So a copy outside of
 * the caches moves three bytes for each byte, where a streamed one moves two. Streamed
 * stores must be whole lines. A fence must follow before another thread reads them.
 */
#ifndef COW_CORE_BASE_STREAM_H
#define COW_CORE_BASE_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COW__LINE ((size_t)64)

#if defined(__x86_64__)
#include <immintrin.h>

static inline void
cow__stream_copy(char *to, const char *from, size_t bytes)
{
	size_t head = -(uintptr_t)to & (COW__LINE - 1);

	if (bytes < 2 * COW__LINE) {
		memcpy(to, from, bytes);
		return;
	}
	if (head) {
		memcpy(to, from, head);
		to += head;
		from += head;
		bytes -= head;
	}
	for (; bytes >= COW__LINE; bytes -= COW__LINE) {
		__m128i a = _mm_loadu_si128((const void *)from);
		__m128i b = _mm_loadu_si128((const void *)(from + 16));
		__m128i c = _mm_loadu_si128((const void *)(from + 32));
		__m128i d = _mm_loadu_si128((const void *)(from + 48));

		_mm_stream_si128((void *)to, a);
		_mm_stream_si128((void *)(to + 16), b);
		_mm_stream_si128((void *)(to + 32), c);
		_mm_stream_si128((void *)(to + 48), d);
		to += COW__LINE;
		from += COW__LINE;
	}
	if (bytes)
		memcpy(to, from, bytes);
}

static inline void
cow__stream_end(void)
{
	_mm_sfence();
}

#else

static inline void
cow__stream_copy(char *to, const char *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static inline void
cow__stream_end(void)
{
}

#endif

#endif
