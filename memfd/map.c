/* SPDX-License-Identifier: MIT */
/*
 * Mappings: see the header. The traps that shaped this file, each pinned by a
 * test:
 *
 * - MAP_NORESERVE: otherwise a private writable mapping is charged to the commit
 *   limit in full. A 1 GiB view that copies one page would count 1 GiB.
 * - A new mapping forgets MADV_DONTFORK, so it is asked for again each time.
 * - MADV_COLLAPSE wants a page in the range (a hole is EINVAL), and fails where a
 *   private mapping has copied one. Reading one byte of a hole in a shared mapping
 *   allocates that page. Writing could overwrite a byte that the program wrote a
 *   moment ago.
 */
#include "memfd/map.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/page.h"
#include "memfd/sys.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#define HUGE_BYTES ((size_t)2 << 20)
#define COLLAPSE_TRIES 4

/* MADV_DONTFORK was granted for some mapping. Where it never was, there is
 * nothing to take back. It may be denied later, when a program sandboxes
 * itself. */
static bool withheld;

bool cow__map_advised;

static int
result(long r)
{
	return r < 0 && r > -4096 ? (int)r : 0;
}

/* Of a call that maps or moves. If a limit on locked memory forbids the mapping the kernel
 * says EAGAIN (mlockall(MCL_FUTURE)), which means something else to our callers. */
static int
mapped(long r)
{
	return r == -EAGAIN ? -ENOMEM : result(r);
}

COW_FORK_CODE static int
withhold(uintptr_t addr, size_t bytes)
{
	int r = result(sys_madvise((void *)addr, bytes, MADV_DONTFORK));

	if (r == 0 && !__atomic_load_n(&withheld, __ATOMIC_RELAXED))
		__atomic_store_n(&withheld, true, __ATOMIC_RELAXED);
	return r;
}

/* Some debuggers write unreadable memory to core files as zeros: terabytes. All
 * reserved memory is marked alike, or the kernel would keep mappings apart. */
static void
leave_out_of_cores(uintptr_t addr, size_t bytes)
{
	(void)sys_madvise((void *)addr, bytes, MADV_DONTDUMP);
}

int
cow__map_reserve(size_t bytes, size_t align, uintptr_t *ret)
{
	long r = sys_mmap(NULL, bytes + align, PROT_NONE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uintptr_t start, at;

	if (mapped(r) < 0)
		return mapped(r);
	start = (uintptr_t)r;
	at = (start + align - 1) & ~(align - 1);
	if (at > start)
		(void)sys_munmap((void *)start, at - start);
	if (at + bytes < start + bytes + align)
		(void)sys_munmap((void *)(at + bytes),
		                 start + align - at);
	leave_out_of_cores(at, bytes);
	*ret = at;
	return 0;
}

/* Linux looks at the advice before it looks at the range; qemu-user and gVisor do not. */
bool
cow__map_is_emulated(void)
{
	return result(sys_madvise(NULL, 0, -1)) == 0;
}

COW_EXPORT int
cow__map_release(uintptr_t addr, size_t bytes)
{
	return result(sys_munmap((void *)addr, bytes));
}

int
cow__map_none(uintptr_t addr, size_t bytes)
{
	int r = mapped(sys_mmap((void *)addr, bytes, PROT_NONE,
	                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
	                                MAP_FIXED,
	                        -1, 0));

	if (r == 0)
		leave_out_of_cores(addr, bytes);
	return r;
}

int
cow__map_anon(uintptr_t addr, size_t bytes, bool huge)
{
	int r = mapped(sys_mmap((void *)addr, bytes, PROT_READ | PROT_WRITE,
	                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
	                                MAP_FIXED,
	                        -1, 0));

	if (r == 0 && huge)
		(void)sys_madvise((void *)addr, bytes, MADV_HUGEPAGE);
	return r;
}

COW_EXPORT int
cow__map_meta(size_t bytes, void **ret)
{
	long r = sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mapped(r) < 0)
		return mapped(r);
	*ret = (void *)r;
	return 0;
}

int
cow__map_common(size_t bytes, uintptr_t *ret)
{
	long r = sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (mapped(r) < 0)
		return mapped(r);
	*ret = (uintptr_t)r;
	return 0;
}

/* At an address that the kernel chooses. Another file than ours is unmapped again. */
static int
map_aside(size_t bytes, const struct cow__descriptor *d, uint64_t offset,
          int protection, int flags, uintptr_t *ret)
{
	long at = sys_mmap(NULL, bytes, protection, flags, d->fd, offset);

	if (mapped(at) < 0)
		return mapped(at);
	if (!cow__descriptor_stayed(d)) {
		(void)sys_munmap((void *)at, bytes);
		return -EBADF;
	}
	*ret = (uintptr_t)at;
	return 0;
}

/* What turns out to be another file's is no memory any more. */
static int
map_in_place(uintptr_t addr, size_t bytes, const struct cow__descriptor *d,
             uint64_t offset, int protection, int flags)
{
	int r = mapped(sys_mmap((void *)addr, bytes, protection, flags | MAP_FIXED,
	                        d->fd, offset));

	if (r == 0 && !cow__descriptor_stayed(d)) {
		(void)cow__map_none(addr, bytes);
		r = -EBADF;
	}
	return r;
}

/*
 * With threads the number may become another file's after the check, and other threads may write
 * the memory at `addr` meanwhile, which must never reach that file. So a shared mapping gets there
 * when it was checked. Limits on addresses may forbid two mappings at once, and the kernel may have
 * unmapped `addr` when it refuses a move. A private mapping writes to no file, and forks make many.
 */
static int
map_file(uintptr_t addr, size_t bytes, const struct cow__descriptor *d,
         uint64_t offset, int protection, int flags, bool inherit)
{
	uintptr_t at;
	int r = -ENOMEM;

	if (!cow__descriptor_ok(d))
		return -EBADF;
	if ((flags & MAP_SHARED) && !cow__descriptor_alone()) {
		r = map_aside(bytes, d, offset, protection, flags, &at);
		if (r == 0) {
			r = cow__map_move(at, bytes, addr);
			if (r < 0) {
				(void)sys_munmap((void *)at, bytes);
				r = -ENOMEM;
			}
		}
	}
	if (r == -ENOMEM)
		r = map_in_place(addr, bytes, d, offset, protection, flags);
	if (r == 0 && !inherit)
		(void)withhold(addr, bytes);
	if (r == 0 && cow__map_advised)
		(void)sys_madvise((void *)addr, bytes, MADV_HUGEPAGE);
	return r;
}

int
cow__map_shared(uintptr_t addr, size_t bytes, const struct cow__descriptor *d,
                uint64_t offset, bool inherit)
{
	return map_file(addr, bytes, d, offset, PROT_READ | PROT_WRITE,
	                MAP_SHARED, inherit);
}

int
cow__map_somewhere(size_t bytes, const struct cow__descriptor *d, uintptr_t *ret)
{
	if (!cow__descriptor_ok(d))
		return -EBADF;
	return map_aside(bytes, d, 0, PROT_READ | PROT_WRITE, MAP_SHARED, ret);
}

int
cow__map_private(uintptr_t addr, size_t bytes, const struct cow__descriptor *d,
                 uint64_t offset, bool inherit)
{
	return map_file(addr, bytes, d, offset, PROT_READ | PROT_WRITE,
	                MAP_PRIVATE | MAP_NORESERVE, inherit);
}

int
cow__map_protected(uintptr_t addr, size_t bytes, const struct cow__descriptor *d,
                   uint64_t offset, bool shared, int prot)
{
	return map_file(addr, bytes, d, offset, prot & 0xffff,
	                shared ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE, false);
}

int
cow__map_move(uintptr_t from, size_t bytes, uintptr_t to)
{
	return mapped(sys_mremap((void *)from, bytes, bytes,
	                         MREMAP_MAYMOVE | MREMAP_FIXED, (void *)to));
}

/* Reserves what was unmapped a moment ago. Another thread may have mapped something there. */
static bool
reserve_again(uintptr_t addr, size_t bytes)
{
	if (mapped(sys_mmap((void *)addr, bytes, PROT_NONE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
	                            MAP_FIXED_NOREPLACE,
	                    -1, 0)) < 0)
		return false;
	leave_out_of_cores(addr, bytes);
	return true;
}

int
cow__map_displace(uintptr_t addr, size_t bytes, uintptr_t to)
{
	int r = mapped(sys_mremap((void *)addr, bytes, bytes,
	                          MREMAP_MAYMOVE | MREMAP_FIXED |
	                                  MREMAP_DONTUNMAP,
	                          (void *)to));

	/* Most kernels unmap `to` before they check the other arguments. What is
	 * there now, if anything, may be another thread's. */
	return r == 0 || reserve_again(to, bytes) ? r : -ENOTRECOVERABLE;
}

int
cow__map_bring_back(uintptr_t from, size_t bytes, uintptr_t to)
{
	/* Not with MREMAP_DONTUNMAP: the kernel asks for that whether the process may have more
	 * addresses, and it does so when it has unmapped `to`. */
	int r = cow__map_move(from, bytes, to);

	return r < 0 || reserve_again(from, bytes) ? r : -ENOTRECOVERABLE;
}

/* No bytes are advised: Linux checks the advice before the length. gVisor checks
 * nothing then, and takes any advice. */
bool
cow__map_knows_collapse(void)
{
	return sys_madvise(NULL, 0, MADV_COLLAPSE) == 0 && !cow__map_is_emulated();
}

int
cow__map_collapse(uintptr_t addr, size_t bytes, size_t *ret_done)
{
	size_t done = 0;
	int r = 0;

	/* First all of it at once. Each call makes every processor flush its
	 * lists of pages under way, which costs a third of clearing one huge
	 * page. */
	bytes -= bytes % HUGE_BYTES;
	for (size_t at = 0; at < bytes; at += HUGE_BYTES)
		(void)*(volatile char *)(addr + at);
	if (bytes && sys_madvise((void *)addr, bytes, MADV_COLLAPSE) == 0) {
		*ret_done = bytes;
		return 0;
	}
	for (size_t at = 0; at + HUGE_BYTES <= bytes; at += HUGE_BYTES) {
		/* EAGAIN: another processor is handling a page of the range,
		 * about once in a hundred times. */
		for (int tries = 0; tries < COLLAPSE_TRIES; tries++) {
			(void)*(volatile char *)(addr + at);
			r = result(sys_madvise((void *)(addr + at), HUGE_BYTES,
			                       MADV_COLLAPSE));
			if (r != -EAGAIN && r != -EBUSY)
				break;
		}
		if (r == 0)
			done += HUGE_BYTES;
		else if (r != -EAGAIN && r != -EBUSY)
			break;
		else
			r = 0;
	}
	*ret_done = done;
	return r;
}

int
cow__map_zap(uintptr_t addr, size_t bytes)
{
	return result(sys_madvise((void *)addr, bytes, MADV_DONTNEED));
}

int
cow__map_punch(uintptr_t addr, size_t bytes)
{
	return result(sys_madvise((void *)addr, bytes, MADV_REMOVE));
}

/* The kernel itself changes a word of each page to what it is, atomically, so
 * nothing is lost that another thread writes meanwhile. A page that can't be had is
 * an error: a touch by the program would be a SIGBUS. The call also looks for
 * threads that wait at `nobody`, and for those that wait at the page's first word
 * if that is far below zero; a futex may wake without a reason. */
static int
touch_by_calls(uintptr_t addr, size_t bytes)
{
	static const int op = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_LT, -2048);
	static uint32_t nobody;
	int r = 0;

	for (uintptr_t at = addr; r == 0 && at < addr + bytes; at += cow__page)
		r = result(SYS6(SYS_futex, &nobody,
		                FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, 0, at,
		                op));
	return r;
}

int
cow__map_populate(uintptr_t addr, size_t bytes)
{
	int r;

	do
		r = result(sys_madvise((void *)addr, bytes,
		                       MADV_POPULATE_WRITE));
	while (r == -EINTR || r == -EAGAIN);
	/* Linux before 5.14 does not know the advice. */
	if (r == -EINVAL)
		r = touch_by_calls(addr, bytes);
	return r == -EFAULT ? -ENOMEM : r;
}

/* rt_sigprocmask() reads a set of 8 bytes before it refuses to do what there is no
 * word for. So the kernel tells what it can read, and does nothing else. */
#define NO_SUCH_HOW (-1)

int
cow__map_readable(uintptr_t addr, size_t bytes)
{
	uintptr_t at = addr & ~(uintptr_t)7, end = addr + bytes;

	for (; at < end; at = (at | (cow__page - 1)) + 1)
		if (sys_rt_sigprocmask(NO_SUCH_HOW, (const uint64_t *)at, NULL) ==
		    -EFAULT)
			return -EFAULT;
	return 0;
}

COW_FORK_CODE int
cow__map_inherit(uintptr_t addr, size_t bytes, bool inherit)
{
	int r;

	if (!inherit)
		return withhold(addr, bytes);
	r = result(sys_madvise((void *)addr, bytes, MADV_DOFORK));
	return r < 0 && !__atomic_load_n(&withheld, __ATOMIC_RELAXED) ? 0 : r;
}

int
cow__map_protect(uintptr_t addr, size_t bytes, int prot)
{
	int key = (prot >> 16 & 31) - 1;

	if (key < 0)
		return result(sys_mprotect((void *)addr, bytes, prot));
	return result(SYS4(SYS_pkey_mprotect, addr, bytes, prot & 0xffff, key));
}

COW_EXPORT int
cow__map_advise(uintptr_t addr, size_t bytes, int advice)
{
	return result(sys_madvise((void *)addr, bytes, advice));
}

int
cow__map_unbind(uintptr_t addr, size_t bytes)
{
	/* Another process may have set the file's policy. The kernel looks at this
	 * mapping's, and does nothing if that is the default already. */
	(void)SYS6(SYS_mbind, addr, bytes, 1 /* MPOL_PREFERRED: local */, 0, 0, 0);
	return result(SYS6(SYS_mbind, addr, bytes, 0 /* MPOL_DEFAULT */, 0, 0,
	                   0));
}

int
cow__map_ask(size_t bytes)
{
	long r = sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mapped(r) < 0 ? mapped(r) : result(sys_munmap((void *)r, bytes));
}

static uint64_t
limit_of(int resource)
{
	struct rlimit limit;

	if (sys_prlimit(resource, &limit) < 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur;
}

uint64_t
cow__map_address_limit(void)
{
	return limit_of(RLIMIT_AS);
}

uint64_t
cow__map_private_limit(void)
{
	return limit_of(RLIMIT_DATA);
}

uint64_t
cow__map_stack_limit(void)
{
	return limit_of(RLIMIT_STACK);
}
