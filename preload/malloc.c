/* SPDX-License-Identifier: MIT */
/*
 * The malloc family
 *
 * Requests of at least the threshold go to the engine, smaller ones to the next
 * allocator. One subtraction and one comparison with the engine's window tell
 * which of the two a pointer came from. If the engine has no memory, the next
 * allocator is asked, for it may have some.
 */
#include "core/fork/fork.h"
#include "core/fork/retire.h"
#include "core/policy/constants.h"
#include "core/storage/block.h"
#include "preload/next.h"
#include "preload/park.h"
#include "preload/preload.h"

#include <cowshed.h>

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)

size_t preload_threshold = SIZE_MAX; /* until the options are read */

/* malloc() compares with this: the threshold, or 0, so that every request is looked at. */
static size_t gate = SIZE_MAX;
static unsigned asked COW_FORK_DATA; /* requests of a child since the fork */
static uint64_t settled_at COW_FORK_DATA; /* from then on the child is not taken to exec soon */

uintptr_t preload_window_start;
/* 0: the engine has no memory yet. */
size_t preload_window_bytes, preload_blocks_bytes;

/* The engine has a window now. */
void
preload_window_note(void)
{
	uintptr_t start, end;

	if (preload_window_bytes)
		return;
	cow_window(&start, &end);
	/* The start is written first, and read last. */
	preload_window_start = start;
	__atomic_store_n(&preload_blocks_bytes, end - start, __ATOMIC_RELEASE);
	__atomic_store_n(&preload_window_bytes, end - start, __ATOMIC_RELEASE);
}

/* All requests may go to the next allocator one day, under a filter of system calls that was
 * written for a program which had allocated before. So its first calls come now. */
static void
next_begin(void)
{
	static bool begun;

	if (likely(__atomic_load_n(&begun, __ATOMIC_RELAXED)))
		return;
	if (!__atomic_exchange_n(&begun, true, __ATOMIC_RELAXED))
		preload_next.free(preload_next.malloc(1));
}

static __attribute__((noinline)) void *
large(size_t bytes, size_t align, uint32_t flags)
{
	int saved = errno;
	void *p;

	next_begin();
	if (cow_block_new(bytes, align, flags, &p) < 0)
		return NULL;
	preload_window_note();
	errno = saved;
	return p;
}

static __attribute__((noinline)) void *
zeroed(size_t bytes)
{
	int saved = errno;
	void *p;

	if (cow__block_zeroed(bytes, &p) < 0)
		return NULL;
	preload_window_note();
	errno = saved;
	return p;
}

void
preload_gate_open(void)
{
	__atomic_store_n(&gate, preload_threshold, __ATOMIC_RELAXED);
}

static size_t served_from, mapped_from; /* the thresholds of a process that may undo it */

static void
serve_again(void)
{
	preload_threshold = served_from;
	preload_map_threshold = mapped_from;
	preload_gate_open();
}

int
preload_retire(void)
{
	int r;

	if (preload_threshold != SIZE_MAX) { /* else another thread sets a filter, too */
		served_from = preload_threshold;
		mapped_from = preload_map_threshold;
	}
	preload_threshold = preload_map_threshold = SIZE_MAX;
	preload_gate_open();
	r = cow__retire();
	if (r < 0)
		serve_again();
	return r;
}

void
preload_retire_undo(void)
{
	cow__retire_undo();
	serve_again();
}

/* A child that only rewrites inherited memory would never enter the engine. The
 * frozen pages below would stay when the other processes have gone. So its first
 * small requests come here until it has lived for 100 ms. */
COW_FORK_CODE void
preload_gate_child(void)
{
	if (!preload_window_bytes)
		return;
	asked = 0;
	settled_at = cow__now() + COW__HEAL_SETTLED_NS;
	__atomic_store_n(&gate, 0, __ATOMIC_RELAXED);
}

static void
open_if_settled(void)
{
	int saved = errno;

	/* A filter may forbid to make a thread. */
	if (preload_sandboxed()) {
		preload_gate_open();
		return;
	}
	if (__atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED) % COW__SHIM_CHILD_ASKS ||
	    cow__now() < settled_at)
		return;
	preload_gate_open();
	cow__fork_settled();
	errno = saved;
}

/* Not inlined, so that malloc() and free() need no stack frame. */
static __attribute__((noinline)) void *
malloc_gated(size_t bytes)
{
	void *p = NULL;

	if (bytes < preload_threshold)
		open_if_settled();
	else
		p = large(bytes, 0, 0);
	return p ? p : preload_next.malloc(bytes);
}

static __attribute__((noinline)) void
free_in_window(void *p)
{
	int saved = errno;

	if (preload_is_block(p))
		cow_block_free(p);
	else
		preload_next.free(p);
	errno = saved;
}

/* For realloc(). The public name malloc may belong to an allocator before us, which
 * passes on some calls and not others. */
static inline void *
our_malloc(size_t bytes)
{
	return likely(bytes < gate) ? preload_next.malloc(bytes)
	                            : malloc_gated(bytes);
}

EXPORT void *
malloc(size_t bytes)
{
	return our_malloc(bytes);
}

EXPORT void
free(void *p)
{
	if (likely(!preload_in_blocks(p)))
		preload_next.free(p);
	else
		free_in_window(p);
}

EXPORT void *
calloc(size_t n, size_t bytes)
{
	size_t total;
	void *p;

	if (__builtin_mul_overflow(n, bytes, &total) ||
	    likely(total < preload_threshold))
		return preload_next.calloc(n, bytes);
	p = zeroed(total);
	return p ? p : preload_next.calloc(n, bytes);
}

/* realloc(p, 0) gives NULL or a block of no bytes: allocators differ, and a program
 * may take one of the two for a failure. So the next allocator decides. */
static void *
to_nothing(void *p)
{
	void *fresh = preload_next.malloc(1);

	if (!fresh)
		return NULL;
	cow_block_free(p);
	return preload_next.realloc(fresh, 0);
}

/* Copies from the engine to the next allocator. */
static void *
move_out(void *p, size_t bytes)
{
	size_t old = cow_block_bytes(p);
	void *fresh = preload_next.malloc(bytes);

	if (!fresh)
		return NULL;
	memcpy(fresh, p, old < bytes ? old : bytes);
	cow_block_free(p);
	return fresh;
}

static void *
move_to_engine(void *p, size_t bytes)
{
	void *fresh = preload_next.has_sizes ? large(bytes, 0, 0) : NULL;
	size_t old;

	if (!fresh)
		return preload_next.realloc(p, bytes);
	old = preload_next.malloc_usable_size(p);
	memcpy(fresh, p, old < bytes ? old : bytes);
	preload_next.free(p);
	return fresh;
}

EXPORT void *
realloc(void *p, size_t bytes)
{
	void *fresh;

	if (!p)
		return our_malloc(bytes);
	if (likely(!preload_is_block(p))) {
		if (likely(bytes < preload_threshold))
			return preload_next.realloc(p, bytes);
		return move_to_engine(p, bytes);
	}
	if (bytes == 0)
		return to_nothing(p);
	/* Shrunk below the threshold and 128 KiB: it leaves the engine. */
	if (bytes < preload_threshold && bytes < COW__SHIM_SHRUNK_STAYS)
		return move_out(p, bytes);
	if (cow_block_resize(p, bytes, &fresh) == 0)
		return fresh;
	fresh = move_out(p, bytes);
	if (!fresh)
		errno = ENOMEM;
	return fresh;
}

EXPORT void *
reallocarray(void *p, size_t n, size_t bytes)
{
	size_t total;

	if (__builtin_mul_overflow(n, bytes, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(p, total);
}

/* Does the engine serve this alignment? The next allocator decides on all others,
 * and on errors. A call from the next allocator itself goes to it: jemalloc makes
 * C++'s aligned new by its public name, and frees the block without calling us. */
static inline int
servable(size_t align, size_t bytes, const void *caller)
{
	return bytes >= preload_threshold && align &&
	       !(align & (align - 1)) && align <= (size_t)1 << 30 &&
	       !preload_next_has(caller);
}

/* An aligned block of the engine's; NULL: the next allocator decides. */
static inline void *
served(size_t align, size_t bytes, const void *caller)
{
	return servable(align, bytes, caller) ? large(bytes, align, 0) : NULL;
}
#define CALLER __builtin_return_address(0)

EXPORT int
posix_memalign(void **ret, size_t align, size_t bytes)
{
	void *p;

	if (servable(align, bytes, CALLER) && align % sizeof(void *) == 0) {
		p = large(bytes, align, 0);
		if (p) {
			*ret = p;
			return 0;
		}
	}
	return preload_next.posix_memalign(ret, align, bytes);
}

EXPORT void *
aligned_alloc(size_t align, size_t bytes)
{
	void *p = served(align, bytes, CALLER);

	return p ? p : preload_next.aligned_alloc(align, bytes);
}

EXPORT void *
memalign(size_t align, size_t bytes)
{
	void *p = served(align, bytes, CALLER);

	return p ? p : preload_next.memalign(align, bytes);
}

EXPORT void *
valloc(size_t bytes)
{
	return memalign(cow__page, bytes);
}

EXPORT void *
pvalloc(size_t bytes)
{
	size_t page = cow__page;

	if (bytes > SIZE_MAX - page) {
		errno = ENOMEM;
		return NULL;
	}
	return memalign(page, (bytes + page - 1) & ~(page - 1));
}

/* From C23; glibc's headers lack them. */
void free_sized(void *p, size_t bytes);
void free_aligned_sized(void *p, size_t align, size_t bytes);

EXPORT void
free_sized(void *p, size_t bytes)
{
	(void)bytes;
	free(p);
}

EXPORT void
free_aligned_sized(void *p, size_t align, size_t bytes)
{
	(void)align;
	(void)bytes;
	free(p);
}

EXPORT size_t
malloc_usable_size(void *p)
{
	if (!p)
		return 0;
	return preload_is_block(p) ? cow_block_bytes(p)
	               : preload_next.malloc_usable_size(p);
}

EXPORT int
malloc_trim(size_t pad)
{
	int any = cow_trim();

	if (preload_next.malloc_trim)
		any |= preload_next.malloc_trim(pad);
	return any;
}
