/* SPDX-License-Identifier: MIT */
/*
 * memcpy and memmove, for programs that are to copy lazily
 *
 * A library of its own, preloaded beside the shim on request
 * (docs/design/lazy-copies.md): every program calls memcpy all the time, and
 * who does not ask for lazy copies shall not pay for them. Large copies are
 * offered to the engine first (core/cow/copy.h), which in the end may know better
 * than to touch the bytes; all others are libc's.
 *
 * memcpy is memmove here. Old programs are bound to one that could be used so,
 * and both are the same code in libc anyway.
 *
 * Nothing here may call memcpy but by the pointer, not even the compiler; so
 * this is compiled without its idea of what loops mean.
 */
#include "core/cow/copy.h"

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

/* Copies of fewer bytes go to libc. 0: before we know where that is. */
static size_t gate;

/* Others' constructors may run before ours. */
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

/* libc's own of these would be called by its headers' macros: no prototypes. */
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

/* What does not fit ends the program, in libc. */
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

/* A function pointer, which ISO C has no conversion for. */
union symbol {
	void *address;
	copy_fn *copy;
	checked_fn *checked;
};

static union symbol
behind(const char *name)
{
	return (union symbol){ .address = dlsym(RTLD_NEXT, name) };
}

__attribute__((constructor)) static void
start(void)
{
	int saved = errno;

	next_memcpy_chk = behind("__memcpy_chk").checked;
	next_memmove_chk = behind("__memmove_chk").checked;
	next = behind("memmove").copy;
	if (next)
		__atomic_store_n(&gate, COW__COPY_LEAST, __ATOMIC_RELEASE);
	errno = saved;
}
