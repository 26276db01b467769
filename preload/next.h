/* SPDX-License-Identifier: MIT */
/*
 * The next allocator, and the other functions behind ours
 *
 * Small requests go on to whatever malloc would have been without us: libc's,
 * or another preloaded allocator's. The pointers start at functions that look
 * the real ones up, so the fast path has no "is it there yet" to ask.
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

	/* malloc_usable_size() knows what malloc() makes. A library that only
	 * wraps malloc, with something of its own before each block, leaves
	 * the former to another. */
	int has_sizes;
};

extern struct preload_next preload_next;

/* Fills it in; any number of times. */
void preload_next_init(void);

/* Does the address lie in the library that the next malloc belongs to? */
int preload_next_has(const void *address);

/* dlsym(RTLD_NEXT), for the functions that are rarely called. */
void *preload_next_symbol(const char *name);

#endif
