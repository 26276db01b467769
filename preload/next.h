/* SPDX-License-Identifier: MIT */
/*
 * The next allocator, and the other functions behind ours
 *
 * Small requests go to the malloc that the program would have without us: libc's,
 * or another preloaded allocator's. The pointers start at functions that look the
 * real ones up, so the fast path need not check whether they are known.
 */
#ifndef COW_PRELOAD_NEXT_H
#define COW_PRELOAD_NEXT_H

#include <stddef.h>
#include <sys/types.h>

struct preload_next {
	void *(*malloc)(size_t);
	void (*free)(void *);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void *(*memalign)(size_t, size_t);
	int (*posix_memalign)(void **, size_t, size_t);
	void *(*aligned_alloc)(size_t, size_t);
	size_t (*malloc_usable_size)(void *);
	int (*malloc_trim)(size_t); /* NULL: has none */

	/* malloc_usable_size() knows the blocks of malloc(). It does not if a
	 * library wraps only malloc, with a head of its own before each block. */
	int has_sizes;
};

/* Hidden where it is used, too: malloc() and free() jump through it without a look
 * into the global offset table. */
extern __attribute__((visibility("hidden"))) struct preload_next preload_next;

/* Fills preload_next. May be called again. */
void preload_next_init(void);

/* Does the address lie in the library of the next malloc? */
int preload_next_has(const void *address);

/* dlsym(RTLD_NEXT), for functions that are rarely called. */
void *preload_next_symbol(const char *name);

#endif
