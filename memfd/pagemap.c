/* SPDX-License-Identifier: MIT */
/*
 * Which pages a private mapping has copied, and which pages were touched
 *
 * PAGEMAP_SCAN (Linux 6.7) answers in microseconds for huge or absent pages.
 * Before it, /proc/self/pagemap has a word for each page: bit 63 present, 62
 * swapped, 61 file page or shared. A copied page is present or swapped, and not a
 * file page. "Swapped" must count: a page under migration looks swapped, and a
 * scan for present pages alone would miss it (kernel compaction does this).
 *
 * A read of anonymous memory that was never written enters the kernel's page of zeros into
 * the page table. It looks like a copied page in pagemap, but has no memory. Only
 * PAGEMAP_SCAN tells the two apart.
 *
 * The descriptor is opened for each scan, in a few microseconds. The program
 * could close one that is kept. One of another process's pagemap shows that
 * process.
 *
 * A new descriptor has the lowest free number. The program knows nothing of the
 * helper thread, and may expect that number from its own next open. So the helper
 * opens nothing. The program's thread that starts the helper opens a descriptor
 * for it. That one lies high in the table and ends with the helper. Before each
 * use the helper checks that it is still that file, and checks again after the
 * use before it believes what it read.
 */
#include "memfd/pagemap.h"
#include "memfd/descriptor.h"
#include "memfd/forked.h"
#include "memfd/page.h"
#include "memfd/sys.h"

#include <sys/ioctl.h>

#define PM_PRESENT (1ull << 63)
#define PM_SWAPPED (1ull << 62)
#define PM_FILE (1ull << 61)

/* From linux/fs.h of 6.7; older headers lack it. */
struct pm_region {
	uint64_t start, end, categories;
};
struct pm_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages,
	        category_inverted, category_mask, category_anyof_mask,
	        return_mask;
};
#define PM_SCAN _IOWR('f', 16, struct pm_arg)
#define PM_MARK 3 /* mark what matches; fail where that can't be */
#define PM_IS_WATCHED (1 << 0) /* the kernel says "WPALLOWED" */
#define PM_IS_WRITTEN (1 << 1)
#define PM_IS_FILE (1 << 2)
#define PM_IS_PRESENT (1 << 3)
#define PM_IS_SWAPPED (1 << 4)
#define PM_IS_ZERO (1 << 5) /* the page of zeros that the kernel has for all */
#define PM_IS_HUGE (1 << 6)
#define HUGE_WEIGHT 64

static uint32_t scan_denied;

static struct cow__descriptor kept = { .fd = -1 };
static uint32_t reader COW_FORK_DATA; /* the thread that opens none; 0: there is no such */

void
cow__pagemap_keep(void)
{
	int fd;

	if (kept.fd >= 0 && cow__descriptor_ok(&kept))
		return;
	kept = COW__NO_DESCRIPTOR;
	fd = (int)sys_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	kept = cow__descriptor_adopt(fd);
	if (kept.fd < COW__FD_HIGH)
		cow__descriptor_close(&kept);
}

void
cow__pagemap_read_kept(void)
{
	__atomic_store_n(&reader, (uint32_t)sys_gettid(), __ATOMIC_RELAXED);
}

COW_FORK_CODE void
cow__pagemap_forget(void)
{
	__atomic_store_n(&reader, 0, __ATOMIC_RELAXED);
	cow__descriptor_close(&kept);
}

/* Another thread may see the reader's id come or go, but never its own. */
static bool
is_reader(void)
{
	uint32_t id = __atomic_load_n(&reader, __ATOMIC_RELAXED);

	return id && id == (uint32_t)sys_gettid();
}

static int
open_pagemap(bool *ret_kept)
{
	*ret_kept = is_reader();
	if (!*ret_kept)
		return (int)sys_open("/proc/self/pagemap",
		                     O_RDONLY | O_CLOEXEC, 0);
	return cow__descriptor_ok(&kept) ? kept.fd : -EBADF;
}

/* `r`, or what became of the descriptor. */
static int
done(int fd, bool is_kept, int r)
{
	if (!is_kept)
		(void)sys_close(fd);
	else if (!cow__descriptor_ok(&kept))
		return -EBADF;
	return r;
}

void
cow__pagemap_use_scan(bool yes)
{
	__atomic_store_n(&scan_denied, yes ? 0 : 1, __ATOMIC_RELAXED);
}

bool
cow__pagemap_has_scan(void)
{
	return __atomic_load_n(&scan_denied, __ATOMIC_RELAXED) == 0;
}

/* What copied pages are looked for: those of `also`, and not of `never`. */
struct scan {
	uint64_t flags, also, never;
};

static int
scan_ioctl(int fd, struct scan scan, uintptr_t start, uintptr_t end,
           struct cow__run *runs, int max, uintptr_t *ret_next)
{
	struct pm_region found[64] = { 0 }; /* valgrind does not know the call */
	struct pm_arg arg = {
		.size = sizeof(arg),
		.flags = scan.flags,
		.vec = (uintptr_t)found,
		.category_inverted = PM_IS_FILE | scan.never,
		.category_mask = PM_IS_FILE | scan.never | scan.also,
		.category_anyof_mask = PM_IS_PRESENT | PM_IS_SWAPPED,
		.return_mask = PM_IS_FILE,
		/* "Is there any": the walk would go on to the end of the run. */
		.max_pages = max == 1 ? 1 : 0,
	};
	int n = 0;

	while (start < end && n < max) {
		long r;

		arg.start = start;
		arg.end = end;
		arg.vec_len = max - n < 64 ? (uint64_t)(max - n) : 64;
		r = sys_ioctl(fd, PM_SCAN, &arg);
		if (r < 0)
			return (int)r;
		for (long i = 0; i < r; i++) {
			if (n && runs[n - 1].end == found[i].start) {
				runs[n - 1].end = found[i].end;
				continue;
			}
			runs[n].start = found[i].start;
			runs[n++].end = found[i].end;
		}
		start = arg.walk_end;
	}
	*ret_next = start;
	return n;
}

/* The weight of the present pages, until it is `most`; *ret grows by it. */
static int
scan_present(int fd, uintptr_t start, uintptr_t end, size_t most, size_t *ret)
{
	struct pm_region found[64] = { 0 };
	struct pm_arg arg = {
		.size = sizeof(arg),
		.vec = (uintptr_t)found,
		.vec_len = 64,
		.max_pages = most,
		.category_mask = PM_IS_PRESENT,
		.return_mask = PM_IS_HUGE,
	};

	while (start < end && *ret < most) {
		long r;

		arg.start = start;
		arg.end = end;
		r = sys_ioctl(fd, PM_SCAN, &arg);
		if (r < 0)
			return (int)r;
		arg.max_pages = most;
		for (long i = 0; i < r; i++) {
			size_t n = (found[i].end - found[i].start) / cow__page;
			bool huge = found[i].categories & PM_IS_HUGE;

			*ret += n / (huge ? HUGE_WEIGHT : 1);
			if (huge) /* the next ones are probably huge, too */
				arg.max_pages = 16 * most;
		}
		start = arg.walk_end;
	}
	return 0;
}

int
cow__pagemap_has(uintptr_t start, uintptr_t end, size_t pages)
{
	bool is_kept;
	size_t found = 0;
	int fd, r;

	if (!cow__pagemap_has_scan())
		return -ENOTTY;
	fd = open_pagemap(&is_kept);
	if (fd < 0)
		return fd;
	r = done(fd, is_kept, scan_present(fd, start, end, pages, &found));
	return r < 0 ? r : found >= pages;
}

static int
scan_words(int fd, uintptr_t start, uintptr_t end, size_t page,
           struct cow__run *runs, int max, uintptr_t *ret_next)
{
	uint64_t words[512];
	int n = 0;

	while (start < end) {
		size_t want = (end - start) / page;
		long r;

		if (want > 512)
			want = 512;
		r = sys_pread(fd, words, want * 8, start / page * 8);
		if (r <= 0)
			return r < 0 ? (int)r : -EIO;
		for (long i = 0; i < r / 8; i++, start += page) {
			if (!(words[i] & (PM_PRESENT | PM_SWAPPED)) ||
			    (words[i] & PM_FILE))
				continue;
			if (n && runs[n - 1].end == start) {
				runs[n - 1].end += page;
				continue;
			}
			if (n == max) {
				*ret_next = start;
				return n;
			}
			runs[n].start = start;
			runs[n++].end = start + page;
		}
	}
	*ret_next = start;
	return n;
}

static int
scan_either(struct scan scan, uintptr_t start, uintptr_t end, struct cow__run *runs, int max,
            uintptr_t *ret_next)
{
	bool is_kept;
	int fd = open_pagemap(&is_kept), n = -ENOTTY;

	if (fd < 0)
		return fd;
	if (cow__pagemap_has_scan()) {
		n = scan_ioctl(fd, scan, start, end, runs, max, ret_next);
		if ((n == -ENOTTY || n == -EINVAL) &&
		    (!is_kept || cow__descriptor_ok(&kept)))
			cow__pagemap_use_scan(false);
	}
	if (n == -ENOTTY || n == -EINVAL)
		n = scan_words(fd, start, end, cow__page, runs, max, ret_next);
	return done(fd, is_kept, n);
}

int
cow__pagemap_copied(uintptr_t start, uintptr_t end, struct cow__run *runs, int max,
                    uintptr_t *ret_next)
{
	return scan_either((struct scan){ 0 }, start, end, runs, max, ret_next);
}

int
cow__pagemap_made(uintptr_t start, uintptr_t end, struct cow__run *runs, int max,
                  uintptr_t *ret_next)
{
	return scan_either((struct scan){ .never = PM_IS_ZERO }, start, end, runs, max, ret_next);
}

static int
scan_marks(struct scan scan, uintptr_t start, uintptr_t end, struct cow__run *runs,
           int max, uintptr_t *ret_next)
{
	bool is_kept;
	int fd = open_pagemap(&is_kept);

	if (fd < 0)
		return fd;
	return done(fd, is_kept,
	            scan_ioctl(fd, scan, start, end, runs, max, ret_next));
}

int
cow__pagemap_mark(uintptr_t start, uintptr_t end, struct cow__run *runs, int max,
                  uintptr_t *ret_next)
{
	return scan_marks((struct scan){ .flags = PM_MARK }, start, end, runs, max,
	                  ret_next);
}

int
cow__pagemap_written(uintptr_t start, uintptr_t end, struct cow__run *runs, int max,
                     uintptr_t *ret_next)
{
	const struct scan written = { .also = PM_IS_WRITTEN },
	                  unwatched = { .never = PM_IS_WATCHED };
	struct cow__run one;
	uintptr_t next;
	int n = scan_marks(written, start, end, runs, max, ret_next), r;

	if (n < 0)
		return n;
	/* Where nobody watches, newer kernels (seen on 7.3, not on 6.18) call no page
	 * written. It is asked last: the program may end the watch at any time. */
	r = scan_marks(unwatched, start, end, &one, 1, &next);
	if (r > 0)
		return -EPERM;
	return r < 0 ? r : n;
}

/* Of a page that is in the page table, whose word is `word`: was it only read, and never
 * written? */
static bool
is_zero_page(int fd, uintptr_t page, uint64_t word)
{
	const struct scan made = { .never = PM_IS_ZERO };
	struct cow__run run;
	uintptr_t next;

	return !(word & (PM_FILE | PM_SWAPPED)) && cow__pagemap_has_scan() &&
	       scan_ioctl(fd, made, page, page + cow__page, &run, 1, &next) == 0;
}

int
cow__pagemap_touched(uintptr_t addr, size_t step, size_t count, size_t gap)
{
	bool is_kept;
	int fd = open_pagemap(&is_kept), n = 0;
	uintptr_t at = addr + step - cow__page;

	if (fd < 0)
		return fd;
	for (size_t i = 0; i < count && i - (size_t)n <= gap; i++, at += step) {
		uint64_t word;
		long r;

		r = sys_pread(fd, &word, sizeof(word), at / cow__page * 8);
		if (r != sizeof(word)) {
			n = r < 0 ? (int)r : -EIO;
			break;
		}
		if ((word & (PM_PRESENT | PM_SWAPPED)) && !is_zero_page(fd, at, word))
			n = (int)i + 1;
	}
	return done(fd, is_kept, n);
}

int
cow__pagemap_touched_page(uintptr_t addr)
{
	return cow__pagemap_touched(addr, cow__page, 1, 0);
}
