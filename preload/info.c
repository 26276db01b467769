/* SPDX-License-Identifier: MIT */
/*
 * What the heap says about itself
 *
 * The next allocator knows nothing of the engine's blocks. For it they would be what it maps for one
 * request, so they are added where it counts those: `hblks` and `hblkhd`. Two text forms get a part of
 * ours. The counters are read without a lock.
 *
 * Programs watch their heaps by these calls, and trim or restart when it grows.
 */
#undef _FORTIFY_SOURCE
#include "preload/next.h"
#include "preload/preload.h"

#include <cowshed.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* glibc's, whose header may lack the second. */
struct mallinfo {
	int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
	size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

EXPORT struct mallinfo mallinfo(void);
EXPORT struct mallinfo2 mallinfo2(void);
EXPORT void malloc_stats(void);
EXPORT int malloc_info(int options, FILE *to);

struct ours {
	uint64_t blocks, bytes, held; /* held: with free memory that is kept warm */
};

static struct ours
ours(void)
{
	struct cow_stats s = { .size = sizeof(s) };

	if (cow_stats_get(&s) < 0)
		return (struct ours){ 0, 0, 0 };
	return (struct ours){ s.blocks_live, s.bytes_live, s.bytes_live + s.bytes_warm };
}

#define NEXT(f, name)                                                          \
	__typeof__(name) *f;                                                   \
	void *symbol = preload_next_symbol(#name);                             \
	memcpy(&f, &symbol, sizeof(f))

/* It counts in an int, as glibc does: more than that wraps around. */
EXPORT struct mallinfo
mallinfo(void)
{
	struct mallinfo i = { .arena = 0 };
	struct ours o = ours();
	NEXT(f, mallinfo);

	if (f)
		i = f();
	i.hblks = (int)((unsigned)i.hblks + (unsigned)o.blocks);
	i.hblkhd = (int)((unsigned)i.hblkhd + (unsigned)o.bytes);
	return i;
}

EXPORT struct mallinfo2
mallinfo2(void)
{
	struct mallinfo2 i = { .arena = 0 };
	struct ours o = ours();
	NEXT(f, mallinfo2);

	if (f)
		i = f();
	i.hblks += o.blocks;
	i.hblkhd += o.bytes;
	return i;
}

/* After the next allocator's part, whose total does not know ours. */
EXPORT void
malloc_stats(void)
{
	struct ours o = ours();
	NEXT(f, malloc_stats);

	if (f)
		f();
	if (o.held)
		(void)fprintf(stderr,
		              "Large blocks (cowshed):\n"
		              "system bytes     = %10llu\n"
		              "in use bytes     = %10llu\n",
		              (unsigned long long)o.held, (unsigned long long)o.bytes);
}

/* The element for ours goes before the end of the next allocator's. */
static int
print_ours(FILE *to, const char *text, size_t n)
{
	static const char end[] = "</malloc>";
	struct ours o = ours();
	size_t at = n;

	while (at && strncmp(text + at, end, sizeof(end) - 1) != 0)
		at--;
	if (!o.held || !at)
		return fwrite(text, 1, n, to) == n ? 0 : -1;
	if (fwrite(text, 1, at, to) != at ||
	    fprintf(to, "<total type=\"cowshed\" count=\"%llu\" size=\"%llu\"/>\n",
	            (unsigned long long)o.blocks, (unsigned long long)o.bytes) < 0 ||
	    fwrite(text + at, 1, n - at, to) != n - at)
		return -1;
	return 0;
}

EXPORT int
malloc_info(int options, FILE *to)
{
	char *text = NULL;
	size_t n = 0;
	FILE *kept;
	int r;
	NEXT(f, malloc_info);

	if (!f) {
		errno = ENOSYS;
		return -1;
	}
	kept = open_memstream(&text, &n);
	if (!kept)
		return f(options, to);
	r = f(options, kept);
	if (fclose(kept) != 0 && r == 0)
		r = -1;
	if (r == 0)
		r = print_ours(to, text, n);
	preload_next.free(text);
	return r;
}
