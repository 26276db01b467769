/* SPDX-License-Identifier: MIT */
/*
 * Test support: a kernel of larger pages. See the header.
 *
 * What is asked for in units of this kernel's pages is asked for in larger ones. Between the
 * calls the memory itself is still of small pages. What makes the difference is that writing
 * to a private mapping copies one: so a look at what was copied copies the rest of each larger
 * page first, by writing what is there.
 */
#include "tests/support/fault/pages.h"

#define cow__page_init real_page_init
#include "memfd/page.c"
#undef cow__page_init

#include "memfd/sys.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SMALL = 4096, MAPS_FDS = 65536 };

/* As in memfd/pagemap.c. */
struct region {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
	        category_mask, category_anyof_mask, return_mask;
};
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define SCAN _IOWR('f', 16, struct scan)
#define PRESENT (3ull << 62)
#define FILE_PAGE (1ull << 61)

static size_t page;                       /* 0: as the machine says */
static unsigned char pagemap[MAPS_FDS];   /* descriptors of it */
static unsigned long refused, widened;

void fault_pages(size_t bytes)
{
	page = bytes;
}

unsigned long fault_pages_refused(void)
{
	return __atomic_load_n(&refused, __ATOMIC_RELAXED);
}

unsigned long fault_pages_widened(void)
{
	return __atomic_load_n(&widened, __ATOMIC_RELAXED);
}

/* Called as the program is loaded, too. */
void cow__page_init(void)
{
	const char *asked = getenv("FAULT_PAGES");

	if (asked)
		page = strtoul(asked, NULL, 10);
	if (page)
		cow__page = page;
	else
		real_page_init();
}

static bool whole(uint64_t n)
{
	return n % page == 0;
}

static uint64_t up(uint64_t n)
{
	return (n + page - 1) / page * page;
}

static long refuse(void)
{
	__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
	return -EINVAL;
}

/* Anywhere, at a boundary. */
static long map_anywhere(fault_gate gate, long bytes, long prot, long flags, long fd, long offset)
{
	long all = bytes + (long)page, at, r;

	r = gate(SYS_mmap, 0, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r < 0)
		return r;
	at = (long)up((uint64_t)r);
	if (at > r)
		gate(SYS_munmap, r, at - r, 0, 0, 0, 0);
	gate(SYS_munmap, at + bytes, r + all - at - bytes, 0, 0, 0, 0);
	r = gate(SYS_mmap, at, bytes, prot, flags | MAP_FIXED, fd, offset);
	if (r < 0)
		gate(SYS_munmap, at, bytes, 0, 0, 0, 0);
	return r;
}

/* Copies the pages from `start` to `end`; those behind the file's end are none. */
static void copy_pages(fault_gate gate, uint64_t start, uint64_t end)
{
	for (; start < end; start += SMALL)
		gate(SYS_madvise, (long)start, SMALL, MADV_POPULATE_WRITE, 0, 0, 0);
}

/* Each run that was copied grows to larger pages. What is behind `arg->end` is none of them. */
static long scan(fault_gate gate, long fd, struct scan *arg)
{
	struct region *v = (struct region *)(uintptr_t)arg->vec;
	long r = gate(SYS_ioctl, fd, (long)SCAN, (long)arg, 0, 0, 0), n = 0;

	for (long i = 0; i < r; i++) {
		struct region wide = v[i];

		wide.start = wide.start / page * page;
		wide.end = up(wide.end);
		if (wide.end - wide.start > v[i].end - v[i].start) {
			copy_pages(gate, wide.start, v[i].start);
			copy_pages(gate, v[i].end, wide.end);
			__atomic_fetch_add(&widened, 1, __ATOMIC_RELAXED);
		}
		if (n && wide.start <= v[n - 1].end)
			v[n - 1].end = wide.end;
		else
			v[n++] = wide;
	}
	if (r >= 0)
		arg->walk_end = up(arg->walk_end);
	return r < 0 ? r : n;
}

/* One word for each larger page: copied if a part of it is. */
static long words(fault_gate gate, long fd, uint64_t *ret, size_t bytes, uint64_t offset)
{
	size_t count = page / SMALL, n = bytes / sizeof(*ret);
	uint64_t small[65536 / SMALL];

	for (size_t i = 0; i < n; i++) {
		uint64_t first = offset / sizeof(*ret) + i, at = first * page;
		bool any = false, copied = false;
		long r = gate(SYS_pread64, fd, (long)small, (long)(count * sizeof(*small)),
		              (long)(first * count * sizeof(*small)), 0, 0);

		if (r < (long)(count * sizeof(*small)))
			return i ? (long)(i * sizeof(*ret)) : r;
		for (size_t k = 0; k < count; k++) {
			any |= (small[k] & PRESENT) != 0;
			copied |= (small[k] & PRESENT) && !(small[k] & FILE_PAGE);
		}
		for (size_t k = 0; copied && k < count; k++)
			if (!(small[k] & PRESENT) || (small[k] & FILE_PAGE)) {
				copy_pages(gate, at + k * SMALL, at + (k + 1) * SMALL);
				__atomic_fetch_add(&widened, 1, __ATOMIC_RELAXED);
			}
		ret[i] = !any ? 0 : copied ? PRESENT & ~(1ull << 62) : (1ull << 63) | FILE_PAGE;
	}
	return (long)bytes;
}

static long resident(fault_gate gate, uint64_t at, uint64_t bytes, unsigned char *ret)
{
	unsigned char small[65536 / SMALL];

	for (uint64_t done = 0; done < bytes; done += page) {
		long r = gate(SYS_mincore, (long)(at + done), (long)page, (long)small, 0, 0, 0);

		if (r < 0)
			return r;
		ret[done / page] = 0;
		for (size_t k = 0; k < page / SMALL; k++)
			ret[done / page] |= small[k] & 1;
	}
	return 0;
}

/* The calls on descriptors: pagemap counts larger pages, and data begins at one. */
static long file_call(fault_gate gate, long nr, long a, long b, long c, long d, long e, long f)
{
	long r;

	switch (nr) {
	case SYS_openat:
		r = gate(nr, a, b, c, d, e, f);
		if (r >= 0 && r < MAPS_FDS)
			pagemap[r] = !strcmp((const char *)b, "/proc/self/pagemap");
		return r;
	case SYS_ioctl:
		return b == (long)SCAN ? scan(gate, a, (struct scan *)c)
		                       : gate(nr, a, b, c, d, e, f);
	case SYS_pread64:
		return a >= 0 && a < MAPS_FDS && pagemap[a]
		               ? words(gate, a, (uint64_t *)b, (size_t)c, (uint64_t)d)
		               : gate(nr, a, b, c, d, e, f);
	case SYS_fcntl:
		r = gate(nr, a, b, c, d, e, f);
		if ((b == F_DUPFD || b == F_DUPFD_CLOEXEC) && a >= 0 && a < MAPS_FDS &&
		    r >= 0 && r < MAPS_FDS)
			pagemap[r] = pagemap[a];
		return r;
	case SYS_close:
		if (a >= 0 && a < MAPS_FDS)
			pagemap[a] = 0;
		return gate(nr, a, b, c, d, e, f);
	case SYS_lseek:
		r = gate(nr, a, b, c, d, e, f);
		if (r >= 0 && c == SEEK_DATA)
			return b > r / (long)page * (long)page ? b : r / (long)page * (long)page;
		return r;
	default:
		return gate(nr, a, b, c, d, e, f);
	}
}

long fault_pages_call(fault_gate gate, long nr, long a, long b, long c, long d, long e, long f)
{
	if (page <= SMALL)
		return gate(nr, a, b, c, d, e, f);
	switch (nr) {
	case SYS_mmap:
		b = (long)up((uint64_t)b);
		if (!whole((uint64_t)a) || !whole((uint64_t)f))
			return refuse();
		return a ? gate(nr, a, b, c, d, e, f) : map_anywhere(gate, b, c, d, e, f);
	case SYS_mremap:
		if (!whole((uint64_t)e))
			return refuse();
		c = (long)up((uint64_t)c);
		/* fall through */
	case SYS_munmap:
	case SYS_mprotect:
	case SYS_pkey_mprotect:
	case SYS_madvise:
	case SYS_mbind:
		if (!whole((uint64_t)a))
			return refuse();
		b = (long)up((uint64_t)b);
		return gate(nr, a, b, c, d, e, f);
	case SYS_mincore:
		return whole((uint64_t)a) ? resident(gate, (uint64_t)a, up((uint64_t)b),
		                                     (unsigned char *)c)
		                          : refuse();
	default:
		return file_call(gate, nr, a, b, c, d, e, f);
	}
}
