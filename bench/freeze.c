/* SPDX-License-Identifier: MIT */
/*
 * The cost of replacing a mapping, at once or after moving its page tables away
 *
 * This measures the kernel alone, without the library. 1 GiB of a memfd is mapped
 * shared and filled; then a private mapping takes its place. That happens at once, or
 * after the page tables were moved, to the same place within 1 GiB or to another one.
 * Taking the moved page tables down later is a line of its own. The memory has huge
 * pages; or small pages in one of eleven places of a huge page; or small pages alone.
 * docs/design/moved-page-tables.md rests on these figures. They have no bars.
 */
#include <sys/syscall.h>

#include "bench/common.h"

#define DONTUNMAP 4 /* MREMAP_DONTUNMAP */

enum how { AT_ONCE, MOVED, MOVED_ELSEWHERE, HOWS };

static const char *const pages_name[] = { "huge", "one-in-11-small", "small" };
static const char *const how_name[] = { "at-once", "moved", "moved-elsewhere" };
static const size_t small_each[] = { 0, 11, 1 };
static size_t size;

static void must_be(bool good, const char *what)
{
	if (!good)
		die("freeze: %s failed", what);
}

static void fill(char *p, size_t each)
{
	for (size_t n = 0; n < size / HUGE; n++) {
		char *chunk = p + n * HUGE;

		chunk[0] = 1;
		if (!each || n % each)
			must_be(!madvise(chunk, HUGE, MADV_COLLAPSE) ||
			                errno == EAGAIN,
			        "MADV_COLLAPSE");
		memset(chunk, 1, HUGE);
	}
}

static void round_of(size_t each, enum how how, struct series *freeze,
                     struct series *later)
{
	const int fixed = MAP_FIXED | MAP_NORESERVE;
	int fd = memfd_create("freeze", MFD_CLOEXEC);
	size_t reserved = 2 * size + 3 * GIB;
	char *r = mmap(NULL, reserved, PROT_NONE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *p, *to;
	double t0;

	must_be(fd >= 0 && r != MAP_FAILED && !ftruncate(fd, (off_t)size),
	        "making a memfd");
	p = (char *)(((uintptr_t)r + GIB - 1) & -GIB);
	to = p + ((size + GIB - 1) & -GIB) + (how == MOVED ? 0 : HUGE);
	must_be(mmap(p, size, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, fd,
	             0) == p,
	        "mapping it");
	fill(p, each);
	t0 = now_ns();
	if (how != AT_ONCE)
		must_be(syscall(SYS_mremap, p, size, size,
		                MREMAP_MAYMOVE | MREMAP_FIXED | DONTUNMAP,
		                to) != -1,
		        "moving page tables");
	must_be(mmap(p, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | fixed, fd,
	             0) == p,
	        "mapping it private");
	series_add(freeze, us_since(t0));
	must_be(p[size - 1] == 1, "reading it");
	t0 = now_ns();
	if (how != AT_ONCE)
		munmap(to, size);
	series_add(later, us_since(t0));
	munmap(r, reserved);
	close(fd);
}

int main(void)
{
	size = sized(GIB);
	warm_host(2 * size);
	for (size_t pages = 0; pages < COUNT_OF(pages_name); pages++) {
		static struct series freeze[HOWS], later[HOWS];

		memset(freeze, 0, sizeof(freeze));
		memset(later, 0, sizeof(later));
		for (int i = 0; i < rounds(5); i++)
			for (int how = 0; how < HOWS; how++)
				round_of(small_each[pages], how, &freeze[how], &later[how]);
		for (int how = 0; how < HOWS; how++) {
			const char *what = named("%s/%s", pages_name[pages], how_name[how]);

			report_ratio(what, "us", &freeze[how], how ? &freeze[AT_ONCE] : NULL);
			if (how != AT_ONCE)
				report_ratio(named("%s/later", what), "us", &later[how], NULL);
		}
	}
	return 0;
}
