/* SPDX-License-Identifier: MIT */
/*
 * A preloaded library that wraps malloc, as profilers and checkers do
 *
 * It has no memory of its own: it asks the next malloc for more, writes a
 * header before what it hands out, and passes the pointer on at free. Like most
 * of its kind it does not wrap the whole family: malloc_usable_size(),
 * reallocarray(), valloc() and the like are missing. So it is right only as
 * long as everybody beside it keeps to these rules:
 *
 *   - a call that it passes on doesn't come back to it by another name;
 *   - nobody asks another library for the size of its blocks;
 *   - what it lacks ends in a call of what it has.
 *
 * A header that is not whole is the end of the process.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x5772617070656421u

struct head {
	uint64_t magic;
	void *start;
	size_t bytes, align;
};

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static struct head *head_of(void *p)
{
	struct head *h = (struct head *)p - 1;

	if (h->magic != (MAGIC ^ (uintptr_t)p)) {
		(void)!write(2, "wrapper: not of mine\n", 21);
		_exit(99);
	}
	return h;
}

static void *wrap(void *start, size_t align, size_t bytes)
{
	uintptr_t p = (uintptr_t)start + sizeof(struct head);
	struct head *h;

	if (start == NULL)
		return NULL;
	p = (p + align - 1) & ~(align - 1);
	h = (struct head *)p - 1;
	*h = (struct head){ MAGIC ^ p, start, bytes, align };
	return (void *)p;
}

void *memalign(size_t align, size_t bytes)
{
	static void *(*next_malloc)(size_t);

	if (next_malloc == NULL)
		next_malloc = (void *(*)(size_t))next("malloc");
	if (align < 16)
		align = 16;
	return wrap(next_malloc(bytes + align + sizeof(struct head)), align,
	            bytes);
}

void *malloc(size_t bytes)
{
	return memalign(16, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	return memalign(align, bytes);
}

int posix_memalign(void **ret, size_t align, size_t bytes)
{
	*ret = memalign(align, bytes);
	return 0;
}

void *calloc(size_t n, size_t bytes)
{
	void *p = malloc(n * bytes);

	return p == NULL ? NULL : memset(p, 0, n * bytes);
}

void free(void *p)
{
	static void (*next_free)(void *);
	struct head *h;

	if (p == NULL)
		return;
	if (next_free == NULL)
		next_free = (void (*)(void *))next("free");
	h = head_of(p);
	h->magic = 0;
	next_free(h->start);
}

void *realloc(void *p, size_t bytes)
{
	static void *(*next_realloc)(void *, size_t);
	struct head *h = p == NULL ? NULL : head_of(p), old;
	void *fresh;

	if (next_realloc == NULL)
		next_realloc = (void *(*)(void *, size_t))next("realloc");
	if (h == NULL || (h->align == 16 && (char *)p - (char *)h->start ==
	                                            sizeof(*h))) {
		fresh = next_realloc(h == NULL ? NULL : h->start,
		                     bytes + 16 + sizeof(*h));
		return wrap(fresh, 16, bytes);
	}
	old = *h;
	fresh = malloc(bytes);
	memcpy(fresh, p, old.bytes < bytes ? old.bytes : bytes);
	free(p);
	return fresh;
}
