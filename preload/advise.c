/* SPDX-License-Identifier: MIT */
/*
 * Calls on pages of ours
 *
 * They look only at addresses in the engine's window. All other calls go straight
 * to the kernel, as libc's own functions do.
 */
#include "preload/park.h"
#include "preload/preload.h"

#include "core/program/advise.h"
#include "core/program/mapping.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

size_t preload_map_threshold; /* 0 until the option is read */

static int
answer(int r)
{
	if (r < 0)
		errno = -r;
	return r < 0 ? -1 : r;
}

/* Not ranges that make no sense: the kernel refuses them. */
static int
ours(const void *addr, size_t bytes)
{
	uintptr_t start = (uintptr_t)addr;

	return bytes && preload_ours(addr) && start + bytes + 65536 > start &&
	       bytes + 65536 > bytes;
}

/* Private anonymous memory that will not run code. */
static int
is_servable(int prot, int flags)
{
	return (flags & ~(MAP_FIXED | MAP_NORESERVE | MAP_POPULATE)) ==
	               (MAP_PRIVATE | MAP_ANONYMOUS) &&
	       !(prot & ~(PROT_READ | PROT_WRITE));
}

/* NULL: ask the kernel instead. */
static void *
map_new(size_t bytes, int prot, int flags)
{
	size_t page = cow__page;
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

/* A system call that makes a mapping: arguments, result and errno. */
struct call {
	long number, a, b, c, d, e, f;
	void *got;
	int error;
};

static bool
make_call(void *arg)
{
	struct call *c = arg;

	c->got = (void *)preload_kernel(c->number, c->a, c->b, c->c, c->d, c->e, c->f);
	c->error = errno;
	return c->got != MAP_FAILED;
}

/* Makes a mapping over a part of the window. `holes`: fails unless the part is a hole. */
static void *
make_over(struct call *c, void *addr, size_t bytes, bool holes)
{
	bool anonymous = c->number == SYS_mmap && c->c == (PROT_READ | PROT_WRITE) &&
	                 is_servable((int)c->c, (int)c->d);
	int r = cow__overmap((uintptr_t)addr, bytes,
	                     (holes ? COW__OVERMAP_HOLES : 0) |
	                             (anonymous ? COW__OVERMAP_ANONYMOUS : 0),
	                     make_call, c);

	if (r == 0 && c->got != MAP_FAILED && c->number == SYS_mmap &&
	    (c->d & MAP_GROWSDOWN))
		cow__grows_down((uintptr_t)addr);
	errno = r < 0 ? -r : c->error;
	return r < 0 ? MAP_FAILED : c->got;
}

/* From <linux/mman.h> and others; not every libc has them. */
enum { HUGE_SHIFT = 26, HUGE_MASK = 63, HUGE_UNKNOWN = 1 << 30 };
#define HUGE_MAGIC 0x958458f6u

/* The page size of a hugetlbfs file; 0: it is another file. */
static size_t
huge_file(int fd)
{
	struct statfs s;

	return preload_kernel(SYS_fstatfs, fd, &s) == 0 &&
	                       (unsigned)s.f_type == HUGE_MAGIC
	               ? (size_t)s.f_bsize
	               : 0;
}

/* The size of huge pages if the program leaves it to the kernel. */
static size_t
huge_default(void)
{
	int fd = (int)preload_kernel(SYS_memfd_create, "cowshed-size",
	                             MFD_HUGETLB | MFD_CLOEXEC);
	size_t unit = 0;

	if (fd < 0)
		return HUGE_UNKNOWN;
	unit = huge_file(fd);
	(void)preload_kernel(SYS_close, fd);
	return unit ? unit : HUGE_UNKNOWN;
}

/* The bytes that the kernel maps when asked for `bytes`: it maps whole huge pages. */
static size_t
will_map(size_t bytes, int flags, int fd)
{
	unsigned log = (unsigned)flags >> HUGE_SHIFT & HUGE_MASK;
	size_t unit = 0, more;

	if (preload_sandboxed()) /* a filter may forbid to ask */
		unit = 0;
	else if (!(flags & MAP_ANONYMOUS))
		unit = huge_file(fd);
	else if (flags & MAP_HUGETLB)
		unit = !log ? huge_default() : log < 40 ? (size_t)1 << log : 0;
	more = unit ? (unit - bytes % unit) % unit : 0;
	return bytes + more > bytes ? bytes + more : bytes;
}

EXPORT void *
mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	struct call c = { SYS_mmap, (long)addr, (long)bytes, prot, flags,
		          fd, offset, NULL, 0 };
	int fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
	int saved = errno;
	void *got;

	if (!preload_map_threshold)
		preload_mmap_begin();
	if (!addr && !fixed && preload_map_threshold &&
	    bytes >= preload_map_threshold && is_servable(prot, flags)) {
		got = map_new(bytes, prot, flags);
		if (got)
			return got;
	}
	if (!ours(addr, bytes) || (uintptr_t)addr % cow__page)
		return (void *)preload_kernel(SYS_mmap, addr, bytes, prot, flags, fd,
		                       offset);
	if (fixed == MAP_FIXED && preload_map_threshold != SIZE_MAX &&
	    is_servable(prot, flags) &&
	    cow__mapping_renew((uintptr_t)addr, bytes, prot) == 0)
		return addr;
	/* A hint is followed, too, if nothing is mapped there. */
	c.d = (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
	got = make_over(&c, addr, will_map(bytes, flags, fd), fixed != MAP_FIXED);
	if (got == MAP_FAILED && fixed)
		return got;
	errno = saved;
	/* A wrong hint is no reason to fail. */
	return got != MAP_FAILED ? got
	                         : (void *)preload_kernel(SYS_mmap, NULL, bytes,
	                                                  prot, flags, fd, offset);
}

EXPORT void *
mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off64_t offset)
{
	return preload_mmap(addr, bytes, prot, flags, fd, offset);
}

/* In a process that filters its calls no memory is mapped anew, so the engine has nothing to note.
 * It only makes memory read as zero that would show the bytes of a file. */
static bool
is_kernels(int advice)
{
	return preload_sandboxed() && advice != MADV_DONTNEED && advice != MADV_FREE &&
	       advice != MADV_REMOVE;
}

EXPORT int
madvise(void *addr, size_t bytes, int advice)
{
	if (ours(addr, bytes) && !is_kernels(advice))
		return answer(cow__advise((uintptr_t)addr, bytes, advice));
	return (int)preload_kernel(SYS_madvise, addr, bytes, advice);
}

EXPORT int
posix_madvise(void *addr, size_t bytes, int advice)
{
	/* As in glibc: POSIX allows no loss of data, so this does nothing. */
	if (advice == POSIX_MADV_DONTNEED)
		return 0;
	if (ours(addr, bytes) && !is_kernels(advice))
		return -cow__advise((uintptr_t)addr, bytes, advice);
	return preload_kernel(SYS_madvise, addr, bytes, advice) < 0 ? errno : 0;
}

EXPORT int
mprotect(void *addr, size_t bytes, int prot)
{
	if (ours(addr, bytes))
		return answer(cow__protect((uintptr_t)addr, bytes, prot, -1));
	return (int)preload_kernel(SYS_mprotect, addr, bytes, prot);
}

EXPORT int
pkey_mprotect(void *addr, size_t bytes, int prot, int key)
{
	if (ours(addr, bytes) && key >= -1 && key < COW__KEYS)
		return answer(cow__protect((uintptr_t)addr, bytes, prot, key));
	return (int)preload_kernel(SYS_pkey_mprotect, addr, bytes, prot, key);
}

EXPORT int
mlock(const void *addr, size_t bytes)
{
	if (ours(addr, bytes))
		return answer(cow__lock_pages((uintptr_t)addr, bytes, 0));
	return (int)preload_kernel(SYS_mlock, addr, bytes);
}

EXPORT int
mlock2(const void *addr, size_t bytes, unsigned flags)
{
	if (ours(addr, bytes) && !(flags & ~(unsigned)MLOCK_ONFAULT))
		return answer(cow__lock_pages((uintptr_t)addr, bytes,
		                              (int)flags));
	return (int)preload_kernel(SYS_mlock2, addr, bytes, flags);
}

EXPORT int
munlock(const void *addr, size_t bytes)
{
	if (ours(addr, bytes))
		return answer(cow__lock_pages((uintptr_t)addr, bytes, -1));
	return (int)preload_kernel(SYS_munlock, addr, bytes);
}

EXPORT int
munmap(void *addr, size_t bytes)
{
	if (ours(addr, bytes))
		return answer(cow__unmap((uintptr_t)addr, bytes));
	return (int)preload_kernel(SYS_munmap, addr, bytes);
}

#define MREMAP_ALL (MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)

static void *
kernel_mremap(void *addr, size_t old_bytes, size_t bytes, int flags, void *to)
{
	return (void *)preload_kernel(SYS_mremap, addr, old_bytes, bytes, flags, to);
}

/* mremap, where `to` may lie in the window. */
static void *
mremap_to(void *addr, size_t old_bytes, size_t bytes, int flags, void *to)
{
	struct call c = { SYS_mremap, (long)addr, (long)old_bytes, (long)bytes,
		          flags, (long)to, 0, NULL, 0 };
	int saved = errno;
	void *got;

	if (!(flags & MREMAP_FIXED) || !ours(to, bytes) ||
	    (uintptr_t)to % cow__page)
		return kernel_mremap(addr, old_bytes, bytes, flags, to);
	got = make_over(&c, to, bytes, false);
	if (got != MAP_FAILED)
		errno = saved;
	return got;
}

/* Does the kernel refuse this for any private memory? */
static int
nonsense(const void *addr, size_t old_bytes, size_t bytes, int flags,
         const void *to)
{
	uintptr_t from = (uintptr_t)addr, at = (uintptr_t)to;
	size_t page = cow__page;

	if ((flags & ~MREMAP_ALL) || from % page || !bytes || !old_bytes ||
	    ((flags & ~MREMAP_MAYMOVE) && !(flags & MREMAP_MAYMOVE)) ||
	    ((flags & MREMAP_DONTUNMAP) && bytes != old_bytes))
		return 1;
	return (flags & MREMAP_FIXED) &&
	       (at % page || (from < at + bytes && at < from + old_bytes));
}

/* If the kernel finds several mappings, they are joined first. With MREMAP_FIXED it may have moved
 * some of them (Linux 6.17 and later), so then its answer stands. */
static void *
move_joined(void *addr, size_t bytes, int flags, void *to)
{
	void *moved = mremap_to(addr, bytes, bytes, flags, to);

	if (moved != MAP_FAILED || errno != EFAULT || (flags & MREMAP_FIXED))
		return moved;
	if (cow__own((uintptr_t)addr, bytes, COW__OWN_TO_JOIN) < 0) {
		errno = EFAULT;
		return moved;
	}
	return mremap_to(addr, bytes, bytes, flags, to);
}

/* Memory that moves out of the window becomes anonymous, and the kernel moves it.
 * The old addresses stay mapped until the engine has made them a hole: no other
 * mapping may get them. What grows does so at an address of the kernel's choice, because
 * in the window the kernel finds no room. */
static void *
move_out(void *addr, size_t old_bytes, size_t bytes, int flags, void *to)
{
	size_t least = old_bytes < bytes ? old_bytes : bytes, has = least;
	int r = cow__own((uintptr_t)addr, old_bytes, COW__OWN_TO_MOVE);
	bool grows = bytes > old_bytes;
	void *moved, *got;

	if (r < 0) {
		errno = -r;
		return MAP_FAILED;
	}
	moved = move_joined(addr, least, (grows ? MREMAP_MAYMOVE : flags) | MREMAP_DONTUNMAP,
	                  grows ? NULL : to);
	got = moved;
	if (moved != MAP_FAILED && grows)
		got = kernel_mremap(moved, old_bytes, bytes, MREMAP_MAYMOVE, NULL);
	if (got != MAP_FAILED && grows && (flags & MREMAP_FIXED)) {
		moved = got;
		has = bytes;
		got = mremap_to(moved, bytes, bytes, flags, to);
	}
	if (got == MAP_FAILED && moved != MAP_FAILED) {
		r = errno;
		(void)kernel_mremap(moved, least, least, MREMAP_MAYMOVE | MREMAP_FIXED, addr);
		if (has > least)
			(void)preload_kernel(SYS_munmap, (char *)moved + least, has - least);
		errno = r;
	}
	if (got != MAP_FAILED && !(flags & MREMAP_DONTUNMAP))
		(void)cow__unmap((uintptr_t)addr, old_bytes);
	return got;
}

/* A filter may forbid what moves pages out of a block. */
static void *
move_by_copy(void *addr, size_t old_bytes, size_t bytes)
{
	void *fresh = (void *)preload_kernel(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
	                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (fresh == MAP_FAILED)
		return fresh;
	memcpy(fresh, addr, old_bytes);
	(void)preload_munmap(addr, old_bytes);
	return fresh;
}

static void *
grow_mapping(void *addr, size_t old_bytes, size_t bytes, int flags)
{
	void *fresh = MAP_FAILED;

	if (!preload_sandboxed()) {
		fresh = move_out(addr, old_bytes, bytes, flags, NULL);
		if (fresh != MAP_FAILED || (errno != EPERM && errno != ENOSYS))
			return fresh;
	}
	return move_by_copy(addr, old_bytes, bytes);
}

EXPORT void *
mremap(void *addr, size_t old_bytes, size_t bytes, int flags, ...)
{
	size_t page = cow__page;
	void *to = NULL;
	va_list ap;

	va_start(ap, flags);
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
		to = va_arg(ap, void *);
	va_end(ap);
	old_bytes = (old_bytes + page - 1) & ~(page - 1);
	bytes = (bytes + page - 1) & ~(page - 1);
	if (!preload_ours(addr))
		return mremap_to(addr, old_bytes, bytes, flags, to);
	if (nonsense(addr, old_bytes, bytes, flags, to)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
		return move_out(addr, old_bytes, bytes, flags, to);
	if (bytes > old_bytes) {
		int saved = errno, r = -ENOMEM;

		if (!preload_sandboxed())
			r = cow__mapping_grow((uintptr_t)addr, old_bytes, bytes);
		errno = saved;
		if (r == -ENOMEM && (flags & MREMAP_MAYMOVE))
			return grow_mapping(addr, old_bytes, bytes, flags);
		if (r < 0)
			errno = -r;
		return r < 0 ? MAP_FAILED : addr;
	}
	if (bytes < old_bytes &&
	    preload_munmap((char *)addr + bytes, old_bytes - bytes) < 0)
		return MAP_FAILED;
	return addr;
}

PRELOAD_OWN(mmap);
PRELOAD_OWN(munmap);
PRELOAD_OWN(mremap);
PRELOAD_OWN(mprotect);
PRELOAD_OWN(pkey_mprotect);
PRELOAD_OWN(madvise);
PRELOAD_OWN(mlock);
PRELOAD_OWN(mlock2);
PRELOAD_OWN(munlock);
