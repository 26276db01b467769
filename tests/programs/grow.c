/* SPDX-License-Identifier: MIT */
/*
 * mremap of private anonymous mappings, in all its forms
 *
 * Where nothing is mapped behind, a mapping grows in place. The new bytes are zero, and have
 * the protection of the last page. The kernel's answers are the same without the shim.
 */
#include "pages.h"

#include <errno.h>

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

int main(void)
{
	page_by_page();
	moves_what_grew();
	no_room();
	over_forks();
	like_the_last_page();
	others();
	puts("grow: done");
	return 0;
}
