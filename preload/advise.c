/* SPDX-License-Identifier: MIT */
/*
 * Calls on pages of ours
 *
 * Only addresses in the engine's window are looked at; all others go straight
 * to the kernel, as libc's own functions do.
 */
#include "preload/preload.h"

#include "core/advise.h"
#include "core/mapping.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

size_t preload_map_threshold = SIZE_MAX; /* until the option is read */

static int
answer(int r)
{
	if (r < 0)
		errno = -r;
	return r < 0 ? -1 : r;
}

/* Plain private anonymous memory, which nobody will run code in. */
static int
is_servable(int prot, int flags)
{
	return (flags & ~(MAP_FIXED | MAP_NORESERVE | MAP_POPULATE)) ==
	               (MAP_PRIVATE | MAP_ANONYMOUS) &&
	       !(prot & ~(PROT_READ | PROT_WRITE));
}

/* NULL: the kernel shall do it. */
static void *
map_new(size_t bytes, int prot, int flags)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int saved = errno;
	void *p;

	if (bytes > SIZE_MAX - page ||
	    cow__mapping_new((bytes + page - 1) & ~(page - 1), prot, &p) < 0)
		return NULL;
	preload_window_note();
	if (flags & MAP_POPULATE)
		(void)cow__advise((uintptr_t)p, bytes, MADV_POPULATE_WRITE);
	errno = saved;
	return p;
}

EXPORT void *
mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (!addr && bytes >= preload_map_threshold &&
	    is_servable(prot, flags)) {
		void *p = map_new(bytes, prot, flags);

		if (p)
			return p;
	}
	if ((flags & MAP_FIXED) && preload_ours(addr) && bytes) {
		int r;

		if (preload_map_threshold != SIZE_MAX &&
		    is_servable(prot, flags) &&
		    cow__mapping_renew((uintptr_t)addr, bytes, prot) == 0)
			return addr;
		r = cow__overmap((uintptr_t)addr, bytes);
		if (r < 0) {
			errno = -r;
			return MAP_FAILED;
		}
	}
	return (void *)syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
}

EXPORT void *
mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off64_t offset)
{
	return mmap(addr, bytes, prot, flags, fd, offset);
}

EXPORT int
madvise(void *addr, size_t bytes, int advice)
{
	if (preload_ours(addr) && bytes)
		return answer(cow__advise((uintptr_t)addr, bytes, advice));
	return (int)syscall(SYS_madvise, addr, bytes, advice);
}

EXPORT int
posix_madvise(void *addr, size_t bytes, int advice)
{
	/* As glibc: its DONTNEED must not lose data, so it does nothing. */
	if (advice == POSIX_MADV_DONTNEED)
		return 0;
	if (preload_ours(addr) && bytes)
		return -cow__advise((uintptr_t)addr, bytes, advice);
	return syscall(SYS_madvise, addr, bytes, advice) < 0 ? errno : 0;
}

EXPORT int
mprotect(void *addr, size_t bytes, int prot)
{
	if (preload_ours(addr) && bytes)
		return answer(cow__protect((uintptr_t)addr, bytes, prot));
	return (int)syscall(SYS_mprotect, addr, bytes, prot);
}

EXPORT int
mlock(const void *addr, size_t bytes)
{
	if (preload_ours(addr) && bytes)
		return answer(cow__lock_pages((uintptr_t)addr, bytes, 0));
	return (int)syscall(SYS_mlock, addr, bytes);
}

EXPORT int
mlock2(const void *addr, size_t bytes, unsigned flags)
{
	if (preload_ours(addr) && bytes)
		return answer(cow__lock_pages((uintptr_t)addr, bytes,
		                              (int)flags));
	return (int)syscall(SYS_mlock2, addr, bytes, flags);
}

EXPORT int
munlock(const void *addr, size_t bytes)
{
	if (preload_ours(addr) && bytes)
		return answer(cow__lock_pages((uintptr_t)addr, bytes, -1));
	return (int)syscall(SYS_munlock, addr, bytes);
}

EXPORT int
munmap(void *addr, size_t bytes)
{
	if (preload_ours(addr) && bytes)
		return answer(cow__unmap((uintptr_t)addr, bytes));
	return (int)syscall(SYS_munmap, addr, bytes);
}

/* Part of a block becomes a mapping of the program's own: new anonymous memory
 * with the same bytes. */
static void *
move_out(void *addr, size_t old_bytes, size_t bytes, int flags, void *to)
{
	int map = MAP_PRIVATE | MAP_ANONYMOUS;
	void *fresh;

	if (!(flags & MREMAP_MAYMOVE)) {
		errno = bytes > old_bytes ? ENOMEM : EINVAL;
		return MAP_FAILED;
	}
	if ((flags & MREMAP_DONTUNMAP) && bytes != old_bytes) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (flags & MREMAP_FIXED)
		map |= MAP_FIXED;
	fresh = mmap(flags & MREMAP_FIXED ? to : NULL, bytes,
	             PROT_READ | PROT_WRITE, map, -1, 0);
	if (fresh == MAP_FAILED)
		return fresh;
	memcpy(fresh, addr, old_bytes < bytes ? old_bytes : bytes);
	if (flags & MREMAP_DONTUNMAP)
		(void)cow__advise((uintptr_t)addr, old_bytes, MADV_DONTNEED);
	else
		(void)cow__unmap((uintptr_t)addr, old_bytes);
	return fresh;
}

EXPORT void *
mremap(void *addr, size_t old_bytes, size_t bytes, int flags, ...)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *to = NULL;
	va_list ap;

	va_start(ap, flags);
	if (flags & MREMAP_FIXED)
		to = va_arg(ap, void *);
	va_end(ap);
	if (!preload_ours(addr))
		return (void *)syscall(SYS_mremap, addr, old_bytes, bytes,
		                       flags, to);
	old_bytes = (old_bytes + page - 1) & ~(page - 1);
	bytes = (bytes + page - 1) & ~(page - 1);
	if ((uintptr_t)addr % page || !bytes || !old_bytes) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (bytes <= old_bytes && !(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))) {
		if (bytes < old_bytes &&
		    munmap((char *)addr + bytes, old_bytes - bytes) < 0)
			return MAP_FAILED;
		return addr;
	}
	return move_out(addr, old_bytes, bytes, flags, to);
}
