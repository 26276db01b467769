/* SPDX-License-Identifier: MIT */
/*
 * memcpy and memmove for lazy copies
 *
 * This library is preloaded beside the shim on request
 * (docs/design/lazy-copies.md). It is separate because every program calls memcpy
 * often: a program that does not ask for lazy copies must not pay for them. Large
 * copies are offered to the engine first (core/cow/copy.h), which may map pages
 * instead of copying bytes. libc makes all other copies.
 *
 * memcpy is memmove here. Old programs are bound to a memcpy that allowed overlap,
 * and in libc both are the same code.
 *
 * This file may call memcpy only by the pointer. So it is compiled without the
 * optimization that turns loops into calls of memcpy.
 */
#include "core/cow/copy.h"
#include "core/policy/constants.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define SITE ((uintptr_t)__builtin_return_address(0))

typedef void *copy_fn(void *, const void *, size_t);
typedef void *checked_fn(void *, const void *, size_t, size_t);

static copy_fn *next;
static checked_fn *next_memcpy_chk, *next_memmove_chk;

/* Copies of fewer bytes go to libc. 0: libc's functions are not looked up yet. */
static size_t gate;

/* For constructors of other libraries that run before ours. */
static void *
early(void *to, const void *from, size_t bytes)
{
	const unsigned char *f = from;
	unsigned char *t = to;

	if ((uintptr_t)t - (uintptr_t)f >= bytes)
		for (size_t i = 0; i < bytes; i++)
			t[i] = f[i];
	else
		while (bytes--)
			t[bytes] = f[bytes];
	return to;
}

static __attribute__((noinline)) void *
large(void *to, const void *from, size_t bytes, uintptr_t site)
{
	int saved = errno;
	bool watch, done;

	if (!next)
		return early(to, from, bytes);
	done = cow__copy_lazily(to, from, bytes, site, &watch);
	if (!done)
		next(to, from, bytes);
	if (watch)
		cow__copy_done(to, from, bytes, site);
	errno = saved;
	return to;
}

/* libc's headers are not included: their macros would call libc's own functions. */
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *__memcpy_chk(void *to, const void *from, size_t bytes, size_t room);
void *__memmove_chk(void *to, const void *from, size_t bytes, size_t room);

EXPORT void *
memcpy(void *to, const void *from, size_t bytes)
{
	return likely(bytes < gate) ? next(to, from, bytes)
	                            : large(to, from, bytes, SITE);
}

EXPORT void *
memmove(void *to, const void *from, size_t bytes)
{
	return likely(bytes < gate) ? next(to, from, bytes)
	                            : large(to, from, bytes, SITE);
}

/* If the bytes do not fit, libc ends the program. */
EXPORT void *
__memcpy_chk(void *to, const void *from, size_t bytes, size_t room)
{
	if (bytes > room && next_memcpy_chk)
		return next_memcpy_chk(to, from, bytes, room);
	return likely(bytes < gate) ? next(to, from, bytes)
	                            : large(to, from, bytes, SITE);
}

EXPORT void *
__memmove_chk(void *to, const void *from, size_t bytes, size_t room)
{
	if (bytes > room && next_memmove_chk)
		return next_memmove_chk(to, from, bytes, room);
	return likely(bytes < gate) ? next(to, from, bytes)
	                            : large(to, from, bytes, SITE);
}

/* ISO C does not convert an address to a function pointer. */
union symbol {
	void *address;
	copy_fn *copy;
	checked_fn *checked;
};

static union symbol
next_symbol(const char *name)
{
	return (union symbol){ .address = dlsym(RTLD_NEXT, name) };
}

__attribute__((constructor)) static void
start(void)
{
	int saved = errno;

	next_memcpy_chk = next_symbol("__memcpy_chk").checked;
	next_memmove_chk = next_symbol("__memmove_chk").checked;
	next = next_symbol("memmove").copy;
	if (next)
		__atomic_store_n(&gate, COW__COPY_LEAST, __ATOMIC_RELEASE);
	errno = saved;
}
