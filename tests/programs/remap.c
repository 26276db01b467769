/* SPDX-License-Identifier: MIT */
/*
 * mremap, munmap and mmap(MAP_FIXED) inside of malloc's blocks
 *
 * Programs that do this (garbage collectors, ring buffers, large arrays) rely on
 * private anonymous memory. Moved memory stays private over a fork, added memory is
 * zero and belongs to the block alone, and unmapped memory is gone.
 */
#include "pages.h"

static const size_t bytes = 4 * MIB;
static int to_child[2];

/* A block between two others, which must not notice anything. */
static unsigned char *left, *p, *right;

static void make(void)
{
	left = get_pages(bytes);
	p = get_pages(bytes);
	right = get_pages(bytes);
	fill(left, bytes, 1);
	fill(p, MIB, 2);
	fill(p + MIB, MIB, 3);
	fill(p + 2 * MIB, 2 * MIB, 4);
	fill(right, bytes, 5);
}

static void check_neighbours(void)
{
	check(holds(left, bytes, 1));
	check(holds(right, bytes, 5));
	check(holds(p, MIB, 2));
	check(holds(p + 2 * MIB, 2 * MIB, 4));
}

static void looks(void *arg)
{
	(void)arg;
	check_neighbours();
}

static void release(void)
{
	check_neighbours();
	free(p);
	free(left);
	free(right);
	make();
	check_neighbours();
	check(holds(p + MIB, MIB, 3));
	free(right);
	free(p);
	free(left);
}

static void sees_the_hole(void *arg)
{
	(void)arg;
	check_neighbours();
	check(!readable(p + MIB) && !readable(p + 2 * MIB - 1));
	fill(p, MIB, 9);
	fill(p + 2 * MIB, 2 * MIB, 9);
}

/* A hole, and then something else in it. */
static void unmapped(void)
{
	make();
	check(munmap(p + MIB, MIB) == 0);
	in_child(sees_the_hole, NULL);
	check_neighbours();
	check(!readable(p + MIB));
	check(map_anonymous(p + MIB, MIB) == p + MIB);
	check(all(p + MIB, MIB, 0));
	fill(p + MIB, MIB, 6);
	check(holds(p + MIB, MIB, 6));
	release();
}

static void unmapped_after_a_fork(void)
{
	make();
	in_child(looks, NULL);
	check(munmap(p + MIB, MIB) == 0);
	check(!readable(p + MIB) && readable(p + 2 * MIB));
	check_neighbours();
	in_child(sees_the_hole, NULL);
	check(map_anonymous(p + MIB, MIB) == p + MIB);
	check(all(p + MIB, MIB, 0));
	release();
}

static unsigned char *moved;

static void writes_what_moved(void *arg)
{
	(void)arg;
	check(holds(moved, MIB, 3));
	check_neighbours();
	fill(moved, MIB, 7);
	gate_wait(to_child);
	check(holds(moved, MIB, 7));
	check_neighbours();
}

/* Moved out of the block; private there as everywhere. */
static void moved_away(int forked_before)
{
	pid_t child;

	make();
	moved = map_anonymous(NULL, MIB);
	if (forked_before)
		in_child(looks, NULL);
	check(mremap(p + MIB, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, moved) ==
	      moved);
	check(holds(moved, MIB, 3));
	check(!readable(p + MIB));
	check(map_anonymous(p + MIB, MIB) == p + MIB);
	fill(p + MIB, MIB, 8);
	child = start(writes_what_moved, NULL);
	check(holds(moved, MIB, 3));
	fill(moved, MIB / 2, 10);
	gate_open(to_child);
	finish(child);
	check(holds(moved, MIB / 2, 10));
	check(holds(p + MIB, MIB, 8));
	release();
	check(holds(moved, MIB / 2, 10));
	check(munmap(moved, MIB) == 0);
}

/* Added memory is zero, and not the memory that lay behind. */
static void grown(void)
{
	unsigned char *q;

	make();
	q = mremap(p + MIB, MIB, 3 * MIB, MREMAP_MAYMOVE);
	check(q != MAP_FAILED);
	check(holds(q, MIB, 3));
	check(all(q + MIB, 2 * MIB, 0));
	fill(q + MIB, 2 * MIB, 11);
	check(holds(q + MIB, 2 * MIB, 11));
	check_neighbours();
	moved = q;
	check(map_anonymous(p + MIB, MIB) == p + MIB);
	release();
	check(holds(q, MIB, 3));
	check(holds(q + MIB, 2 * MIB, 11));
	check(munmap(q, 3 * MIB) == 0);
}

static void kept_in_place(void)
{
	make();
	check(mremap(p + MIB, MIB, MIB, 0) == p + MIB);
	check(holds(p + MIB, MIB, 3));
	check(mremap(p + MIB, MIB, MIB / 2, 0) == p + MIB);
	check(holds(p + MIB, MIB / 2, 3));
	check(!readable(p + MIB + MIB / 2));
	check_neighbours();
	check(map_anonymous(p + MIB, MIB) == p + MIB);
	release();
}

/* The old place stays mapped and is zero. */
static void left_mapped(void)
{
	make();
	moved = map_anonymous(NULL, MIB);
	check(mremap(p + MIB, MIB, MIB,
	             MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
	             moved) == moved);
	check(holds(moved, MIB, 3));
	check(all(p + MIB, MIB, 0));
	fill(p + MIB, MIB, 12);
	check(holds(moved, MIB, 3));
	check(munmap(moved, MIB) == 0);
	check(holds(p + MIB, MIB, 12));
	release();
}

/* Only shared mappings can be doubled, and this is none. */
static void not_doubled(void)
{
	make();
	check(mremap(p + MIB, 0, MIB, MREMAP_MAYMOVE) == MAP_FAILED);
	check(errno == EINVAL);
	check(holds(p + MIB, MIB, 3));
	release();
}

/* A file in the middle of a block. */
static void file_in_between(void)
{
	char name[] = "/tmp/remap-XXXXXX";
	int fd = mkstemp(name);
	unsigned char *q;

	check(fd >= 0 && unlink(name) == 0);
	check(ftruncate(fd, (off_t)MIB) == 0);
	make();
	q = mmap(p + MIB, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
	         fd, 0);
	check(q == p + MIB && all(q, MIB, 0));
	fill(q, MIB, 13);
	in_child(looks, NULL);
	check(holds(q, MIB, 13));
	release();
	q = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
	check(q != MAP_FAILED && holds(q, MIB, 13));
	munmap(q, MIB);
	close(fd);
}

static void waits(void *arg)
{
	(void)arg;
	gate_wait(to_child);
}

/* A hint never makes a call fail, even if there is a mapping. */
static void hinted(void)
{
	static const size_t offsets[] = { 0, MIB, 64 * MIB, 1024 * MIB };
	unsigned char *q;
	pid_t child;
	size_t i;

	make();
	moved = p;
	for (i = 0; i < COUNT(offsets); i++) {
		q = mmap(p + offsets[i], MIB, PROT_READ | PROT_WRITE,
		         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(q != MAP_FAILED && all(q, MIB, 0));
		fill(q, MIB, 14);
		check_neighbours();
		check(holds(q, MIB, 14));
		check(munmap(q, MIB) == 0);
	}
	/* A child still has the memory that was freed here. */
	child = start(waits, NULL);
	free(p);
	q = mmap(moved, bytes, PROT_READ | PROT_WRITE,
	         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(q != MAP_FAILED && all(q, bytes, 0));
	check(munmap(q, bytes) == 0);
	gate_open(to_child);
	finish(child);
	free(left);
	free(right);
}

/* A part was emptied after a fork; to its program it is one mapping all the same. */
static void emptied_and_moved(int grows)
{
	unsigned char *q;
	pid_t child;

	make();
	child = start(waits, NULL);
	check(madvise(p + MIB, MIB, MADV_DONTNEED) == 0);
	fill(p + MIB + MIB / 2, MIB / 4, 3);
	if (grows) {
		q = mremap(p, bytes, 2 * bytes, MREMAP_MAYMOVE);
	} else {
		q = map_anonymous(NULL, bytes);
		check(mremap(p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, q) ==
		      q);
	}
	check(q != MAP_FAILED);
	check(holds(q, MIB, 2) && holds(q + 2 * MIB, 2 * MIB, 4));
	check(all(q + MIB, MIB / 2, 0) && holds(q + MIB + MIB / 2, MIB / 4, 3));
	check(all(q + 2 * MIB - MIB / 4, MIB / 4, 0));
	if (grows)
		check(all(q + bytes, bytes, 0));
	check(!readable(p) && !readable(p + bytes - 1));
	check(munmap(q, grows ? 2 * bytes : bytes) == 0);
	check(map_anonymous(p, bytes) == p);
	gate_open(to_child);
	finish(child);
	free(p);
	free(left);
	free(right);
}

/* The kernel makes a mapping of huge pages larger than it was asked for. None of them
 * is touched, so that none need be reserved. */
static void hinted_huge(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_HUGETLB |
	                  21 << 26; /* MAP_HUGE_2MB */
	unsigned char *hole, *q;
	size_t before;
	int i;

	make();
	memset(p, 0x5a, bytes);
	before = -(uintptr_t)p % (2 * MIB);
	hole = p + before;
	check(munmap(hole, PAGE) == 0);
	for (i = 0; i < 3; i++) {
		q = mmap(hole, PAGE, PROT_READ | PROT_WRITE,
		         i == 0 ? flags
		                : i == 1 ? flags & ~(21 << 26)
		                         : flags | MAP_FIXED_NOREPLACE,
		         -1, 0);
		check(q != hole && all(p, before, 0x5a));
		check(all(hole + PAGE, bytes - before - PAGE, 0x5a));
		if (q != MAP_FAILED)
			check(i < 2 && munmap(q, 2 * MIB) == 0);
	}
	free(left);
	free(right);
	check(map_anonymous(hole, PAGE) == hole);
	free(p);
}

int main(void)
{
	pages_init();
	gate_make(to_child);
	unmapped();
	unmapped_after_a_fork();
	moved_away(0);
	moved_away(1);
	grown();
	kept_in_place();
	not_doubled();
	file_in_between();
	left_mapped();
	emptied_and_moved(0);
	emptied_and_moved(1);
	hinted();
	hinted_huge();
	puts("remap: done");
	return 0;
}
