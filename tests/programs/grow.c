/* SPDX-License-Identifier: MIT */
/*
 * mremap of private anonymous mappings, in all its forms
 *
 * Where nothing is mapped behind, a mapping grows in place. The new bytes are zero, and have
 * the protection of the last page. The kernel's answers are the same without the shim.
 */
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define SIZE (4 * MIB)
#define ROOM (16 * MIB)

static void nothing(void *arg)
{
	(void)arg;
}

/* A mapping of SIZE with nothing behind it, in which all was written before. */
static unsigned char *with_room(void)
{
	unsigned char *p = map_anonymous(NULL, ROOM);

	fill(p, SIZE, 1);
	memset(p + SIZE, 0xee, ROOM - SIZE);
	check(munmap(p + SIZE, ROOM - SIZE) == 0);
	return p;
}

static int grows(unsigned char *p, size_t from, size_t to, int flags)
{
	return mremap(p, from, to, flags) == p;
}

static int refused(int error, void *p, size_t from, size_t to, int flags, void *at)
{
	errno = 0;
	return mremap(p, from, to, flags, at) == MAP_FAILED && errno == error;
}

static void page_by_page(void)
{
	unsigned char *p = with_room();
	size_t n = SIZE;

	for (; n < SIZE + 600 * PAGE; n += PAGE) {
		check(grows(p, n, n + PAGE, 0));
		check(all(p + n, PAGE, 0));
		fill(p + n, PAGE, n);
	}
	check(holds(p, SIZE, 1));
	for (size_t at = SIZE; at < n; at += PAGE)
		check(holds(p + at, PAGE, at));
	check(grows(p, n, ROOM, 0));
	check(all(p + n, ROOM - n, 0));
	/* Shrunk, and grown again: what was there is gone. */
	memset(p + SIZE, 7, ROOM - SIZE);
	check(grows(p, ROOM, SIZE, 0));
	check(grows(p, SIZE, ROOM / 2, MREMAP_MAYMOVE));
	check(all(p + SIZE, ROOM / 2 - SIZE, 0) && holds(p, SIZE, 1));
	check(munmap(p, ROOM / 2) == 0);
}

static void no_room(void)
{
	unsigned char *p = map_anonymous(NULL, ROOM), *q;

	check(refused(ENOMEM, p, SIZE, 2 * SIZE, 0, NULL)); /* it goes on there */
	check(munmap(p + 2 * SIZE, SIZE) == 0);
	fill(p, 2 * SIZE, 2);
	memset(p + 3 * SIZE, 3, SIZE);
	check(grows(p, 2 * SIZE, 2 * SIZE + PAGE, 0));
	check(refused(ENOMEM, p, 2 * SIZE + PAGE, 4 * SIZE, 0, NULL));
	check(refused(EFAULT, p, 3 * SIZE + PAGE, 4 * SIZE + PAGE, 0, NULL));
	check(grows(p + SIZE, SIZE + PAGE, 2 * SIZE, 0));
	check(refused(ENOMEM, p + SIZE, 2 * SIZE, 2 * SIZE + PAGE, 0, NULL));
	check(all(p + 3 * SIZE, SIZE, 3) && holds(p, 2 * SIZE, 2));
	q = mremap(p, 2 * SIZE, 3 * SIZE, MREMAP_MAYMOVE);
	check(q != MAP_FAILED && q != p && holds(q, 2 * SIZE, 2) && all(q + 2 * SIZE, SIZE, 0));
	check(munmap(q, 3 * SIZE) == 0 && munmap(p, ROOM) == 0);
}

static void in_the_child(void *arg)
{
	unsigned char *p = arg;

	check(holds(p, SIZE, 1) && all(p + SIZE, SIZE, 0));
	check(grows(p, 2 * SIZE, 3 * SIZE, 0));
	memset(p + SIZE, 5, 2 * SIZE);
}

static void over_forks(void)
{
	unsigned char *p = with_room();

	in_child(nothing, NULL);
	check(grows(p, SIZE, 2 * SIZE, 0));
	check(holds(p, SIZE, 1) && all(p + SIZE, SIZE, 0));
	in_child(in_the_child, p);
	check(holds(p, SIZE, 1) && all(p + SIZE, SIZE, 0));
	p[0] ^= 1;
	check(grows(p, 2 * SIZE, 3 * SIZE, 0));
	p[0] ^= 1;
	memset(p + 2 * SIZE, 6, SIZE);
	check(holds(p, SIZE, 1) && all(p + SIZE, SIZE, 0) && all(p + 2 * SIZE, SIZE, 6));
	check(munmap(p, 3 * SIZE) == 0);
}

static void misses_it(void *arg)
{
	unsigned char *p = arg;

	check(!readable(p) && !readable(p + SIZE));
}

static void like_the_last_page(void)
{
	unsigned char *p = with_room();

	check(mprotect(p, SIZE, PROT_READ) == 0);
	check(grows(p, SIZE, 2 * SIZE, 0));
	check(readable(p + SIZE) && !writable(p + SIZE));
	check(mprotect(p, 2 * SIZE, PROT_READ | PROT_WRITE) == 0);
	check(holds(p, SIZE, 1) && all(p + SIZE, SIZE, 0));
	memset(p + SIZE, 1, SIZE);
	check(madvise(p, 2 * SIZE, MADV_DONTFORK) == 0);
	check(grows(p, 2 * SIZE, 3 * SIZE, 0));
	in_child(misses_it, p + SIZE);
	check(munmap(p, 3 * SIZE) == 0);
}

/* To another place, and what makes no sense. */
static void others(void)
{
	unsigned char *p = with_room(), *to = map_anonymous(NULL, ROOM), *q;

	check(grows(p, SIZE, SIZE, 0));
	check(refused(EINVAL, p, 0, SIZE, MREMAP_MAYMOVE, NULL));
	check(refused(EINVAL, p, SIZE, 0, 0, NULL));
	check(refused(EINVAL, p + 1, SIZE, 2 * SIZE, 0, NULL));
	check(refused(EINVAL, p, SIZE, SIZE, MREMAP_FIXED, to));
	check(refused(EINVAL, p, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
	q = mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	check(q == to && holds(q, SIZE, 1) && all(q + SIZE, SIZE, 0));
	p = mremap(q, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	check(p != MAP_FAILED && p != q && holds(p, SIZE, 1) && all(q, SIZE, 0));
	check(munmap(p, SIZE) == 0 && munmap(to, ROOM) == 0);
}

/* A mapping that grew behind an advice, and moves as one. */
static void moves_what_grew(void)
{
	unsigned char *to = map_anonymous(NULL, ROOM), *p = with_room(), *q;

	check(madvise(p, SIZE, MADV_DONTDUMP) == 0);
	check(grows(p, SIZE, 2 * SIZE, 0) && grows(p, 2 * SIZE, 3 * SIZE, 0));
	fill(p + SIZE, SIZE, 2);
	in_child(nothing, NULL);
	q = mremap(p, 3 * SIZE, 4 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	check(q == to && holds(q, SIZE, 1) && holds(q + SIZE, SIZE, 2));
	check(all(q + 2 * SIZE, 2 * SIZE, 0));
	check(munmap(to, ROOM) == 0);

	p = with_room();
	check(madvise(p, SIZE, MADV_DONTDUMP) == 0);
	check(grows(p, SIZE, 2 * SIZE, 0));
	fill(p + SIZE, SIZE, 2);
	q = mremap(p, 2 * SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	check(q != MAP_FAILED && holds(q, SIZE, 1) && holds(q + SIZE, SIZE, 2));
	check(all(p, 2 * SIZE, 0));
	p[0] = p[2 * SIZE - 1] = 1;
	in_child(nothing, NULL);
	check(munmap(q, 2 * SIZE) == 0 && munmap(p, 2 * SIZE) == 0);
	/* Parts that differ are two mappings to the kernel, too. */
	p = with_room();
	check(madvise(p, SIZE, MADV_DONTDUMP) == 0);
	check(grows(p, SIZE, 2 * SIZE, 0) && mprotect(p, SIZE, PROT_READ) == 0);
	check(refused(EFAULT, p, 2 * SIZE, 3 * SIZE, MREMAP_MAYMOVE, NULL));
	check(holds(p, SIZE, 1) && all(p + SIZE, SIZE, 0));
	/* Alike again, they are one. */
	check(mprotect(p, SIZE, PROT_READ | PROT_WRITE) == 0);
	check(grows(p, 2 * SIZE, 3 * SIZE, 0) && holds(p, SIZE, 1));
	check(munmap(p, 3 * SIZE) == 0);
}

static void maps_anew(unsigned char *p, size_t bytes)
{
	check(munmap(p, bytes) == 0);
	check(mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      p);
	check(all(p, bytes, 0));
	memset(p, 9, bytes);
}

/* What the program mapped anew is joined by the kernel with what is around. */
static void moves_what_was_mapped_anew(int forked)
{
	unsigned char *p = map_anonymous(NULL, ROOM), *behind = p + SIZE, *q;

	fill(p, MIB, 1);
	fill(p + 2 * MIB, 2 * MIB, 2);
	if (forked)
		in_child(nothing, NULL);
	maps_anew(p + MIB, PAGE);
	maps_anew(p + MIB + PAGE, MIB - PAGE);
	if (forked)
		in_child(nothing, NULL);
	q = mremap(p, SIZE, 64 * SIZE, MREMAP_MAYMOVE);
	check(q != MAP_FAILED && holds(q, MIB, 1) && all(q + MIB, MIB, 9));
	check(holds(q + 2 * MIB, 2 * MIB, 2) && all(q + SIZE, 63 * SIZE, 0));
	memset(q + MIB, 8, MIB);
	in_child(nothing, NULL);
	check(holds(q, MIB, 1) && all(q + MIB, MIB, 8) && munmap(q, 64 * SIZE) == 0);

	/* Nothing but mappings that were made apart. */
	p = behind;
	for (size_t at = 0; at < SIZE; at += SIZE / 4)
		maps_anew(p + at, SIZE / 4);
	q = map_anonymous(NULL, ROOM);
	check(mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q && all(q, SIZE, 9));
	check(munmap(q, ROOM) == 0 && munmap(behind + SIZE, ROOM - 2 * SIZE) == 0);
}

/* A read of missing memory waits for the watcher, here without end. To the kernel a watched part is
 * a mapping of its own, as here, and so the call fails. */
static void refuses_what_is_watched(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1); /* UFFD_USER_MODE_ONLY */
	unsigned char *p = map_anonymous(NULL, ROOM);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { { (uintptr_t)p + MIB, PAGE }, UFFDIO_REGISTER_MODE_MISSING, 0 };

	fill(p, SIZE, 1);
	maps_anew(p + MIB, MIB);
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &r) == 0) {
		check(madvise(p + MIB, PAGE, MADV_DONTNEED) == 0);
		check(refused(EFAULT, p, SIZE, 64 * SIZE, MREMAP_MAYMOVE, NULL));
		check(holds(p, MIB, 1) && all(p + MIB + PAGE, MIB - PAGE, 9));
	}
	if (fd >= 0)
		close(fd);
	check(munmap(p, ROOM) == 0);
}

/* Nobody may read a guard page (Linux 6.13). The kernel moves it along; the shim may refuse. */
static void never_reads_guards(void)
{
	unsigned char *p = map_anonymous(NULL, ROOM), *q;

	fill(p, SIZE, 1);
	maps_anew(p + MIB, MIB);
	if (madvise(p + MIB, PAGE, 102) == 0) { /* MADV_GUARD_INSTALL */
		q = mremap(p, SIZE, 64 * SIZE, MREMAP_MAYMOVE);
		check(q != MAP_FAILED || errno == EFAULT);
		p = q != MAP_FAILED ? q : p;
		check(holds(p, MIB, 1) && !readable(p + MIB) && readable(p + MIB + PAGE));
	}
	check(munmap(p, SIZE) == 0);
}

/* A file is no part of it, and stays a file. Behind it is no room to grow. */
static void refuses_a_file(void)
{
	unsigned char *p = map_anonymous(NULL, ROOM), *q;
	char name[] = "/tmp/grow-XXXXXX";
	int fd = mkstemp(name);

	check(fd >= 0 && unlink(name) == 0 && ftruncate(fd, (off_t)MIB) == 0);
	q = mmap(p + MIB, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	check(q == p + MIB && all(q, MIB, 0));
	check(refused(EFAULT, p, SIZE, 64 * SIZE, MREMAP_MAYMOVE, NULL));
	memset(q, 4, MIB);
	check(munmap(p, ROOM) == 0);
	q = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
	check(q != MAP_FAILED && all(q, MIB, 4) && munmap(q, MIB) == 0);
	close(fd);
}

int main(void)
{
	page_by_page();
	moves_what_grew();
	moves_what_was_mapped_anew(0);
	moves_what_was_mapped_anew(1);
	refuses_a_file();
	refuses_what_is_watched();
	never_reads_guards();
	no_room();
	over_forks();
	like_the_last_page();
	others();
	puts("grow: done");
	return 0;
}
