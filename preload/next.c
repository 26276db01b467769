/* SPDX-License-Identifier: MIT */
/*
 * The next allocator, and the other functions behind ours. See the header.
 *
 * dlsym() itself may allocate while we look malloc up. That memory comes from the
 * arena, 32 KiB of static memory, and is never reused. `free` of such a pointer, at any later time,
 * must not reach the next allocator. So once the arena has been used, free, realloc
 * and malloc_usable_size look at the address first.
 */
#include "preload/next.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

static char arena[32 << 10] __attribute__((aligned(64)));
static size_t arena_used;
static int looking; /* a lookup is under way */
static struct preload_next real;
static uintptr_t object_start, object_bytes; /* of the library with the next malloc */

static void *
arena_take(size_t align, size_t bytes)
{
	size_t at, old = __atomic_load_n(&arena_used, __ATOMIC_RELAXED);

	if (align < 16)
		align = 16;
	do {
		at = (old + 16 + align - 1) & ~(align - 1);
		if (bytes > sizeof(arena) || at + bytes > sizeof(arena)) {
			errno = ENOMEM;
			return NULL;
		}
	} while (!__atomic_compare_exchange_n(&arena_used, &old, at + bytes, 1,
	                                      __ATOMIC_RELAXED,
	                                      __ATOMIC_RELAXED));
	memcpy(arena + at - sizeof(bytes), &bytes, sizeof(bytes));
	return arena + at;
}

static int
in_arena(const void *p)
{
	return (uintptr_t)p - (uintptr_t)arena < sizeof(arena);
}

static size_t
arena_size(const void *p)
{
	size_t bytes;

	memcpy(&bytes, (const char *)p - sizeof(bytes), sizeof(bytes));
	return bytes;
}

static void
careful_free(void *p)
{
	if (p && !in_arena(p))
		real.free(p);
}

static size_t
careful_usable_size(void *p)
{
	return in_arena(p) ? arena_size(p) : real.malloc_usable_size(p);
}

static void *
careful_realloc(void *p, size_t bytes)
{
	void *fresh;

	if (!in_arena(p))
		return real.realloc(p, bytes);
	fresh = real.malloc(bytes);
	if (fresh)
		memcpy(fresh, p,
		       arena_size(p) < bytes ? arena_size(p) : bytes);
	return fresh;
}

static void *
first_malloc(size_t bytes)
{
	if (looking)
		return arena_take(16, bytes);
	preload_next_init();
	return preload_next.malloc(bytes);
}

static void
first_free(void *p)
{
	if (looking || in_arena(p))
		return;
	preload_next_init();
	preload_next.free(p);
}

static void *
first_calloc(size_t n, size_t bytes)
{
	if (looking)
		return arena_take(16, n * bytes); /* static memory is zero */
	preload_next_init();
	return preload_next.calloc(n, bytes);
}

static void *
first_realloc(void *p, size_t bytes)
{
	if (looking) {
		void *fresh = arena_take(16, bytes);

		if (fresh && p && in_arena(p))
			memcpy(fresh, p, arena_size(p));
		return fresh;
	}
	preload_next_init();
	return preload_next.realloc(p, bytes);
}

static void *
first_memalign(size_t align, size_t bytes)
{
	if (looking)
		return arena_take(align, bytes);
	preload_next_init();
	return preload_next.memalign(align, bytes);
}

static int
first_posix_memalign(void **ret, size_t align, size_t bytes)
{
	preload_next_init();
	return preload_next.posix_memalign(ret, align, bytes);
}

static void *
first_aligned_alloc(size_t align, size_t bytes)
{
	preload_next_init();
	return preload_next.aligned_alloc(align, bytes);
}

static size_t
first_usable_size(void *p)
{
	if (in_arena(p))
		return arena_size(p);
	preload_next_init();
	return preload_next.malloc_usable_size(p);
}

struct preload_next preload_next = {
	first_malloc,          first_free,          first_calloc,
	first_realloc,         first_memalign,      first_posix_memalign,
	first_aligned_alloc,   first_usable_size,   NULL,
	0,
};

void *
preload_next_symbol(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* Notes the object that dl_iterate_phdr() shows, if the next malloc is in it. */
static int
note_object(struct dl_phdr_info *info, size_t bytes, void *address)
{
	uintptr_t low = UINTPTR_MAX, high = 0, start;

	(void)bytes;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		if (start < low)
			low = start;
		if (start + info->dlpi_phdr[i].p_memsz > high)
			high = start + info->dlpi_phdr[i].p_memsz;
	}
	if ((uintptr_t)address < low || (uintptr_t)address >= high)
		return 0;
	object_start = low;
	object_bytes = high - low;
	return 1;
}

int
preload_next_has(const void *address)
{
	return (uintptr_t)address - object_start < object_bytes;
}

void
preload_next_init(void)
{
	struct preload_next n;
	void *p;

	looking = 1;
	memset(&n, 0, sizeof(n));
#define LOOK(name) (p = dlsym(RTLD_NEXT, #name), memcpy(&n.name, &p, sizeof(p)))
	LOOK(malloc);
	(void)dl_iterate_phdr(note_object, p);
	LOOK(free);
	LOOK(calloc);
	LOOK(realloc);
	LOOK(memalign);
	LOOK(posix_memalign);
	LOOK(aligned_alloc);
	LOOK(malloc_usable_size);
	n.has_sizes = preload_next_has(p);
	LOOK(malloc_trim);
#undef LOOK
	looking = 0;
	real = n;
	if (__atomic_load_n(&arena_used, __ATOMIC_RELAXED)) {
		n.free = careful_free;
		n.realloc = careful_realloc;
		n.malloc_usable_size = careful_usable_size;
	}
	preload_next = n;
}
