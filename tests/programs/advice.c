/* SPDX-License-Identifier: MIT */
/*
 * madvise and mlock on malloc's pages do what they do on anonymous memory,
 * before a fork and after it, in the parent and in the child
 */
#include "pages.h"

#include <sys/resource.h>

static const size_t bytes = 4 * MIB;
static unsigned char *p;
static int to_child[2];

/* The second quarter becomes zero at once; the rest stays. */
static void drop(uint64_t seed)
{
	check(posix_madvise(p, bytes, POSIX_MADV_DONTNEED) == 0); /* drops nothing */
	check(posix_madvise(p, bytes, POSIX_MADV_WILLNEED) == 0);
	check(holds(p, bytes, seed));
	check(madvise(p + MIB, MIB, MADV_DONTNEED) == 0);
	check(all(p + MIB, MIB, 0));
	check(holds(p, MIB, seed));
	memset(p + MIB, 5, MIB);
	check(all(p + MIB, MIB, 5));
	check(madvise(p + MIB + PAGE, PAGE, MADV_DONTNEED) == 0);
	check(all(p + MIB, PAGE, 5));
	check(all(p + MIB + PAGE, PAGE, 0));
	check(all(p + MIB + 2 * PAGE, MIB - 2 * PAGE, 5));
	fill(p, bytes, seed);
}

static void drops_after_a_fork(void *arg)
{
	(void)arg;
	check(holds(p, bytes, 1));
	drop(1);
	gate_wait(to_child);
	check(holds(p, bytes, 1));
	check(madvise(p, bytes, MADV_DONTNEED) == 0);
	check(all(p, bytes, 0));
	fill(p, bytes, 3);
	check(holds(p, bytes, 3));
}

static void dontneed(void)
{
	pid_t child;
	int n;

	fill(p, bytes, 1);
	drop(1);
	for (n = 0; n < 4; n++) {
		child = start(drops_after_a_fork, NULL);
		if (n % 2)
			drop(1);
		fill(p, bytes, 2);
		check(madvise(p, bytes, MADV_DONTNEED) == 0);
		check(all(p, bytes, 0));
		gate_open(to_child);
		finish(child);
		check(all(p, bytes, 0));
		fill(p, bytes, 1);
	}
	check(madvise(p + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
	check(holds(p, bytes, 1));
}

/* Dropped, and no process has written since the fork. */
static void drops_at_once(void *arg)
{
	(void)arg;
	check(madvise(p, bytes, MADV_DONTNEED) == 0);
	check(all(p, bytes, 0));
}

static void dontneed_untouched(void)
{
	fill(p, bytes, 4);
	in_child(drops_at_once, NULL);
	check(holds(p, bytes, 4));
	check(madvise(p + 2 * MIB, 2 * MIB, MADV_DONTNEED) == 0);
	check(holds(p, 2 * MIB, 4));
	check(all(p + 2 * MIB, 2 * MIB, 0));
	in_child(drops_at_once, NULL);
	check(all(p + 2 * MIB, 2 * MIB, 0));
}

/* Freed pages read as they were or as zero, page by page. */
static void lazily_freed(void)
{
	unsigned char *q;

	memset(p, 7, bytes);
	check(madvise(p, bytes, MADV_FREE) == 0);
	for (q = p; q < p + bytes; q += PAGE)
		check(all(q, PAGE, 7) || all(q, PAGE, 0));
	fill(p, bytes, 5);
	check(holds(p, bytes, 5));
}

static void sees_wiped(void *arg)
{
	(void)arg;
	check(holds(p, MIB, 6));
	check(all(p + MIB, MIB, 0));
	check(holds(p + 2 * MIB, MIB, 7));
	check(!readable(p + 3 * MIB));
	check(!readable(p + 4 * MIB - 1));
	fill(p + MIB, MIB, 8);
	check(holds(p + MIB, MIB, 8));
}

static void sees_all(void *arg)
{
	(void)arg;
	check(holds(p + MIB, MIB, 9));
	check(holds(p + 3 * MIB, MIB, 9));
}

static void at_the_fork(void)
{
	int n;

	fill(p, MIB, 6);
	fill(p + MIB, MIB, 9);
	fill(p + 2 * MIB, MIB, 7);
	fill(p + 3 * MIB, MIB, 9);
	check(madvise(p + MIB, MIB, MADV_WIPEONFORK) == 0);
	check(madvise(p + 3 * MIB, MIB, MADV_DONTFORK) == 0);
	/* Advice lasts, over more than one fork. */
	for (n = 0; n < 3; n++) {
		in_child(sees_wiped, NULL);
		check(holds(p, MIB, 6));
		check(holds(p + MIB, MIB, 9));
		check(holds(p + 3 * MIB, MIB, 9));
		fill(p, MIB, 6);
	}
	check(madvise(p + MIB, MIB, MADV_KEEPONFORK) == 0);
	check(madvise(p + 3 * MIB, MIB, MADV_DOFORK) == 0);
	in_child(sees_all, NULL);
}

/* The last word on a page counts, also where it is about a part of what was
 * advised before. */
static void sees_parts(void *arg)
{
	(void)arg;
	check(all(p, 4 * PAGE, 0) && all(p + 8 * PAGE, 4 * PAGE, 0));
	check(all(p + 14 * PAGE, 2 * PAGE, 0));
	check(holds(p + 4 * PAGE, 4 * PAGE, 15));
	check(holds(p + 12 * PAGE, 2 * PAGE, 16));
	check(holds(p + 16 * PAGE, 16 * PAGE, 17));
}

static void parts_at_the_fork(void)
{
	int n;

	fill(p, bytes, 14);
	check(madvise(p, 16 * PAGE, MADV_WIPEONFORK) == 0);
	check(madvise(p + 4 * PAGE, 4 * PAGE, MADV_KEEPONFORK) == 0);
	check(madvise(p + 12 * PAGE, 12 * PAGE, MADV_KEEPONFORK) == 0);
	check(madvise(p + 14 * PAGE, 2 * PAGE, MADV_WIPEONFORK) == 0);
	fill(p + 4 * PAGE, 4 * PAGE, 15);
	fill(p + 12 * PAGE, 2 * PAGE, 16);
	fill(p + 16 * PAGE, 16 * PAGE, 17);
	for (n = 0; n < 3; n++) {
		in_child(sees_parts, NULL);
		check(holds(p + 4 * PAGE, 4 * PAGE, 15));
	}
	check(madvise(p, 16 * PAGE, MADV_KEEPONFORK) == 0);
}

/* Only hints; what they return is the same with and without the shim. */
static void hints(void)
{
	static const struct {
		int advice;
		const char *name;
	} table[] = {
		{ MADV_NORMAL, "normal" },
		{ MADV_RANDOM, "random" },
		{ MADV_SEQUENTIAL, "sequential" },
		{ MADV_WILLNEED, "willneed" },
		{ MADV_HUGEPAGE, "hugepage" },
		{ MADV_NOHUGEPAGE, "nohugepage" },
		{ MADV_DONTDUMP, "dontdump" },
		{ MADV_DODUMP, "dodump" },
		{ MADV_COLD, "cold" },
		{ MADV_PAGEOUT, "pageout" },
		{ MADV_POPULATE_READ, "populate_read" },
		{ MADV_POPULATE_WRITE, "populate_write" },
		{ MADV_REMOVE, "remove" },
		{ 12345, "nonsense" },
	};
	size_t i;
	int r;

	fill(p, bytes, 10);
	for (i = 0; i < COUNT(table); i++) {
		errno = 0;
		r = madvise(p + MIB, MIB, table[i].advice);
		printf("advice: %s %d %d\n", table[i].name, r, errno);
		check(holds(p, bytes, 10));
	}
}

static void sees_the_locked(void *arg)
{
	(void)arg;
	check(holds(p, bytes, 11));
	fill(p, bytes, 12);
	check(mlock(p, 4 * PAGE) == 0);
	check(munlock(p, 4 * PAGE) == 0);
	check(holds(p, bytes, 12));
}

/* Kilobytes that the kernel says are locked. */
static long locked_kib(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	char line[256];
	long kib = -1;

	while (status != NULL && fgets(line, sizeof(line), status) != NULL)
		sscanf(line, "VmLck: %ld kB", &kib);
	if (status != NULL)
		fclose(status);
	return kib;
}

static void locks(void)
{
	long before = locked_kib(), after;
	int n;

	fill(p, bytes, 11);
	check(mlock(p + MIB, 16 * PAGE) == 0);
	for (n = 0; n < 3; n++) {
		in_child(sees_the_locked, NULL);
		check(holds(p, bytes, 11));
		fill(p, bytes, 11);
	}
	after = locked_kib();
	printf("advice: %ld KiB locked\n", after - before);
	check(munlock(p + MIB, 16 * PAGE) == 0);
	printf("advice: %ld KiB locked\n", locked_kib() - before);
}

int main(void)
{
	pages_init();
	gate_make(to_child);
	p = get_pages(bytes);
	dontneed();
	dontneed_untouched();
	lazily_freed();
	at_the_fork();
	parts_at_the_fork();
	hints();
	locks();
	free(p);
	p = get_pages(bytes);
	fill(p, bytes, 13);
	in_child(drops_at_once, NULL);
	check(holds(p, bytes, 13));
	free(p);
	puts("advice: done");
	return 0;
}
