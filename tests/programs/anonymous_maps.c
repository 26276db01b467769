/* SPDX-License-Identifier: MIT */
/*
 * A block of malloc against anonymous memory: munmap, mmap and mremap of parts
 * of it
 */
#include "anonymous.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static void unmap(int what)
{
	static const struct {
		size_t from, pages;
	} parts[] = { { FROM, RUN }, { FROM, 1 }, { TO - 1, 1 }, { 1, 1 } };
	size_t from = parts[what].from, n = parts[what].pages;

	CALL(munmap(page(from) + 1, PAGE));
	CALL(munmap(page(from), 0));
	CALL(munmap(page(from), n * PAGE));
	look("unmapped");
	CALL(munmap(page(from), n * PAGE)); /* nothing there: fine */
	CALL(madvise(page(from), n * PAGE, MADV_DONTNEED));
	CALL(mprotect(page(from), n * PAGE, PROT_READ));
	CALL(mlock(page(from), n * PAGE));
	look("still");
}

static void *map_at(void *q, size_t n, int flags)
{
	return mmap(q, n, PROT_READ | PROT_WRITE,
	            MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void map_again(int flags)
{
	void *q;

	errno = 0;
	q = map_at(page(FROM), PAGE, MAP_FIXED_NOREPLACE);
	note("in the way: %d %d\n", q == MAP_FAILED, errno);
	CALL(munmap(page(FROM), RUN * PAGE));
	errno = 0;
	q = map_at(page(FROM), RUN / 2 * PAGE, flags);
	note("there: %d %d\n", q == page(FROM), errno);
	look("mapped again");
	if (q == page(FROM)) {
		fill(page(FROM), PAGE, FROM + 2001);
		CALL(madvise(page(FROM), PAGE, MADV_DONTNEED));
		fill(page(FROM + 1), PAGE, FROM + 2002);
	}
	errno = 0;
	q = map_at(page(FROM + RUN / 2 - 1), 2 * PAGE, MAP_FIXED_NOREPLACE);
	note("half in the way: %d %d\n", q == MAP_FAILED, errno);
	q = map_at(page(FROM + RUN / 2), RUN / 2 * PAGE, MAP_FIXED);
	note("filled up: %d\n", q == page(FROM + RUN / 2));
	flags_of(page(FROM));
}

/* A file of the program's own in the middle stays what it is. */
static void map_file(int advice)
{
	int fd = memfd_create("anonymous", MFD_CLOEXEC);
	unsigned char *q;

	check(fd >= 0 && ftruncate(fd, RUN * PAGE) == 0);
	q = mmap(page(FROM), RUN * PAGE, PROT_READ | PROT_WRITE,
	         MAP_SHARED | MAP_FIXED, fd, 0);
	check(q == page(FROM));
	fill(q, PAGE, FROM + 2001);
	CALL(madvise(q, RUN * PAGE, advice));
	look("file");
	fill(q + PAGE, PAGE, FROM + 2002);
	check(pread(fd, page(200), PAGE, PAGE) == PAGE);
	note("shared: %d\n", holds(page(200), PAGE, FROM + 2002));
	CALL(madvise(q, RUN * PAGE, MADV_REMOVE));
	check(pread(fd, page(201), PAGE, 0) == PAGE);
	note("removed: %d\n", all(page(201), PAGE, 0));
	close(fd);
}

static unsigned char *elsewhere;

static void look_elsewhere(size_t n)
{
	size_t i;

	for (i = 0; i < n; i += n / 4)
		look_at(elsewhere + i * PAGE, FROM + i);
	note("\n");
}

static void forked_elsewhere(void *arg)
{
	(void)arg;
	look_elsewhere(RUN);
	if (writable(elsewhere))
		fill(elsewhere, PAGE, 7);
	look("child");
}

static void moved(size_t old, size_t new, int flags)
{
	unsigned char *q;

	elsewhere = map_anonymous(NULL, 4 * RUN * PAGE);
	errno = 0;
	if (flags & MREMAP_FIXED)
		q = mremap(page(FROM), old * PAGE, new * PAGE, flags,
		           elsewhere);
	else
		q = mremap(page(FROM), old * PAGE, new * PAGE, flags);
	note("moved %zu %zu %x: %d %d\n", old, new, flags,
	     q == MAP_FAILED ? -1 : q == page(FROM) ? 0 : 1, errno);
	look("old place");
	if (q == MAP_FAILED || q == page(FROM)) {
		munmap(elsewhere, 4 * RUN * PAGE);
		return;
	}
	if (q != elsewhere) {
		munmap(elsewhere, 4 * RUN * PAGE);
		elsewhere = q;
	}
	look_elsewhere(new);
	if (new >= RUN && new <= 2 * RUN) {
		in_child(forked_elsewhere, NULL);
		look_elsewhere(new);
		if (writable(elsewhere))
			fill(elsewhere, PAGE, FROM + 2001);
		look_elsewhere(new);
	}
	munmap(elsewhere, new * PAGE);
}

static void move(int flags)
{
	moved(RUN, RUN, flags);
}

static void move_and_grow(int flags)
{
	moved(RUN, 2 * RUN, flags);
}

static void move_and_shrink(int flags)
{
	moved(RUN, RUN / 2, flags);
}

static void move_nothing(int flags)
{
	moved(0, RUN, flags);
	moved(RUN, 0, flags);
}

static void move_protected(int prot)
{
	CALL(mprotect(page(FROM), RUN * PAGE, prot));
	moved(RUN, RUN, MREMAP_MAYMOVE | MREMAP_FIXED);
}

static void move_onto_itself(int flags)
{
	errno = 0;
	note("%d ", mremap(page(FROM), RUN * PAGE, RUN * PAGE, flags,
	                   page(FROM + 1)) == MAP_FAILED);
	note("%d\n", errno);
	note("%d ", mremap(page(FROM), RUN * PAGE, RUN * PAGE, flags,
	                   page(TO) + 1) == MAP_FAILED);
	note("%d\n", errno);
	note("%d ", mremap(page(FROM) + 1, RUN * PAGE, RUN * PAGE, flags,
	                   page(TO)) == MAP_FAILED);
	note("%d\n", errno);
}

/* Within the block. */
static void move_inside(int flags)
{
	errno = 0;
	note("%d ", mremap(page(FROM), RUN * PAGE, RUN * PAGE, flags,
	                   page(TO)) == page(TO));
	note("%d\n", errno);
	look_at(page(TO), FROM);
	look_at(page(TO + 1), FROM + 1);
}

/* A mapping of the program's own is moved there. */
static void move_in(int flags)
{
	unsigned char *q = map_anonymous(NULL, RUN * PAGE);

	fill(q, PAGE, FROM + 2001);
	CALL(mprotect(page(FROM), RUN * PAGE, PROT_NONE));
	errno = 0;
	note("%d ", mremap(q, RUN * PAGE, RUN * PAGE, flags, page(FROM)) ==
	                    page(FROM));
	note("%d\n", errno);
	CALL(madvise(page(FROM + 1), PAGE, MADV_DONTNEED));
}

/* A mapping that fails leaves the old one there. */
static void map_wrongly(int fd)
{
	void *q;

	(void)fd;
	q = mmap(page(FROM), PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0);
	note("%d %d\n", q == MAP_FAILED, errno);
	q = mmap(page(FROM), PAGE, PROT_READ, MAP_FIXED, 0, 0);
	note("%d %d\n", q == MAP_FAILED, errno);
	q = map_at(page(FROM) + 1, PAGE, MAP_FIXED);
	note("%d %d\n", q == MAP_FAILED, errno);
}

static const struct call calls[] = {
	WITH(unmap, 0),
	WITH(unmap, 1),
	WITH(unmap, 2),
	WITH(unmap, 3),
	WITH(map_again, MAP_FIXED),
	WITH(map_again, MAP_FIXED_NOREPLACE),
	WITH(map_again, 0),
	WITH(map_file, MADV_DONTNEED),
	WITH(map_file, MADV_WILLNEED),
	WITH(map_file, MADV_DONTDUMP),
	WITH(map_file, MADV_WIPEONFORK),
	WITH(move, 0),
	WITH(move, MREMAP_MAYMOVE),
	WITH(move, MREMAP_MAYMOVE | MREMAP_FIXED),
	WITH(move, MREMAP_MAYMOVE | MREMAP_DONTUNMAP),
	WITH(move, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP),
	WITH(move, MREMAP_FIXED),
	WITH(move, MREMAP_DONTUNMAP),
	WITH(move, 64),
	WITH(move_and_grow, 0),
	WITH(move_and_grow, MREMAP_MAYMOVE),
	WITH(move_and_grow, MREMAP_MAYMOVE | MREMAP_FIXED),
	WITH(move_and_grow, MREMAP_MAYMOVE | MREMAP_DONTUNMAP),
	WITH(move_and_shrink, 0),
	WITH(move_and_shrink, MREMAP_MAYMOVE),
	WITH(move_and_shrink, MREMAP_MAYMOVE | MREMAP_FIXED),
	WITH(move_and_shrink, MREMAP_MAYMOVE | MREMAP_DONTUNMAP),
	WITH(move_nothing, MREMAP_MAYMOVE),
	WITH(move_nothing, 0),
	WITH(move_protected, PROT_NONE),
	WITH(move_protected, PROT_READ),
	WITH(move_in, MREMAP_MAYMOVE | MREMAP_FIXED),
	WITH(map_wrongly, 0),
	WITH(move_onto_itself, MREMAP_MAYMOVE | MREMAP_FIXED),
	WITH(move_inside, MREMAP_MAYMOVE | MREMAP_FIXED),
};

int main(int argc, char **argv)
{
	return compare(calls, COUNT(calls), argc, argv);
}
