/* SPDX-License-Identifier: MIT */
/*
 * What allocators and virtual machines do with mmap
 *
 * Large pieces, given back in parts, renewed in place, reserved first and
 * committed later; random steps against a model, beside forks.
 */
#include "program.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#define PLAIN (MAP_PRIVATE | MAP_ANONYMOUS)
#define BOTH (PROT_READ | PROT_WRITE)

enum { PIECES = 24, PAGES = 1200, STEPS = 1000 };

static unsigned char *map(size_t bytes, int prot, int flags)
{
	void *p = mmap(NULL, bytes, prot, PLAIN | flags, -1, 0);

	check(p != MAP_FAILED);
	check((uintptr_t)p % PAGE == 0);
	return p;
}

static void remap(void *at, size_t bytes, int prot)
{
	check(mmap(at, bytes, prot, PLAIN | MAP_FIXED, -1, 0) == at);
}

/* ---- Access that must fail ------------------------------------------------ */

/* Not of what is unmapped: freed memory may still be there. */

static sigjmp_buf back;

static void on_fault(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

static int faults(volatile unsigned char *p, int write)
{
	if (sigsetjmp(back, 1))
		return 1;
	if (write)
		*p = 1;
	else
		(void)*p;
	return 0;
}

/* ---- One by one ----------------------------------------------------------- */

static void parts(void)
{
	size_t bytes = 20 * MIB;
	unsigned char *p = map(bytes, BOTH, 0), *q;

	check(all(p, bytes, 0));
	fill(p, bytes, 1);
	check(munmap(p + 5 * MIB, 3 * MIB) == 0);
	check(munmap(p, PAGE) == 0);
	check(munmap(p + bytes - PAGE, PAGE) == 0);
	check(!faults(p + PAGE, 0) && !faults(p + 8 * MIB, 1));
	/* Over parts that are there and parts that are not. */
	check(munmap(p, bytes) == 0);
	check(munmap(p, bytes) == 0);

	/* The same, with memory that was handed out before. */
	p = map(bytes, BOTH, 0);
	q = map(bytes, BOTH, 0);
	check(all(p, bytes, 0) && all(q, bytes, 0));
	fill(p, bytes, 2);
	fill(q, bytes, 3);
	for (size_t at = 0; at < bytes; at += 2 * MIB)
		check(munmap(p + at + MIB, MIB) == 0);
	check(holds(q, bytes, 3));
	for (size_t at = 0; at < bytes; at += 2 * MIB)
		check(!faults(p + at, 0) && !faults(p + at + MIB - 1, 1));
	for (size_t at = 0; at < bytes; at += 2 * MIB)
		check(munmap(p + at, MIB) == 0);
	check(munmap(q, bytes) == 0);
}

static void reserved(void)
{
	size_t bytes = 256 * MIB, at;
	unsigned char *p = map(bytes, PROT_NONE, MAP_NORESERVE);

	check(faults(p, 0) && faults(p + bytes - 1, 1));
	for (at = 0; at < 16 * MIB; at += 4 * MIB) {
		remap(p + at, MIB, BOTH);
		check(mprotect(p + at + MIB, MIB, BOTH) == 0);
		check(all(p + at, 2 * MIB, 0));
		fill(p + at, 2 * MIB, at);
		check(faults(p + at + 2 * MIB, 0));
	}
	for (at = 0; at < 16 * MIB; at += 4 * MIB)
		check(holds(p + at, 2 * MIB, at));
	/* Given back, and wanted again. */
	remap(p, MIB, PROT_NONE);
	check(faults(p, 0) && !faults(p + MIB, 0));
	remap(p, MIB, PROT_READ);
	check(all(p, MIB, 0) && faults(p, 1));
	remap(p, 3 * MIB, BOTH);
	check(all(p, 3 * MIB, 0));
	fill(p, 3 * MIB, 9);
	check(madvise(p, MIB, MADV_DONTNEED) == 0);
	check(all(p, MIB, 0));
	check(munmap(p, bytes) == 0);
}

static void moved(void)
{
	unsigned char *p = map(6 * MIB, BOTH, MAP_POPULATE);

	fill(p, 6 * MIB, 4);
	p = mremap(p, 6 * MIB, 9 * MIB, MREMAP_MAYMOVE);
	check(p != MAP_FAILED);
	check(holds(p, 6 * MIB, 4) && all(p + 6 * MIB, 3 * MIB, 0));
	check(mremap(p, 9 * MIB, 2 * MIB, 0) == p);
	check(holds(p, 2 * MIB, 4));
	check(munmap(p, 2 * MIB) == 0);
}

static void finds_all(void *arg)
{
	check(holds(arg, 3 * MIB, 11));
}

/* A new mapping has none of the attributes of the old one. */
static void renewed(void)
{
	unsigned char *p = map(4 * MIB, BOTH, 0);
	int key = pkey_alloc(0, 0), n;

	fill(p + 3 * MIB, MIB, 10);
	for (n = 0; n < 2; n++) {
		check(madvise(p, MIB, MADV_DONTFORK) == 0);
		check(madvise(p + MIB, MIB, MADV_WIPEONFORK) == 0);
		if (key >= 0)
			check(pkey_mprotect(p + 2 * MIB, MIB, BOTH, key) == 0);
		remap(p, 3 * MIB, BOTH);
		check(all(p, 3 * MIB, 0));
		fill(p, 3 * MIB, 11);
		if (key >= 0) {
			check(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
			check(!faults(p + 2 * MIB, 1));
			check(pkey_set(key, 0) == 0);
			fill(p, 3 * MIB, 11);
		}
		in_child(finds_all, p);
		check(holds(p + 3 * MIB, MIB, 10));
	}
	if (key >= 0)
		check(pkey_free(key) == 0);
	check(munmap(p, 4 * MIB) == 0);
}

static void looks_at_both(void *arg)
{
	unsigned char *p = arg;

	check(holds(p + MIB, MIB, 6) && holds(p + 2 * MIB, MIB, 7));
	fill(p + MIB, 2 * MIB, 8);
}

/* Where something was that has been unmapped. */
static void mapped_there_again(void)
{
	unsigned char *p = map(8 * MIB, BOTH, 0), *q;
	int fd = memfd_create("mappings", MFD_CLOEXEC);

	check(fd >= 0 && ftruncate(fd, (off_t)MIB) == 0);
	fill(p, 8 * MIB, 5);
	check(munmap(p, 8 * MIB) == 0);
	remap(p + MIB, MIB, BOTH);
	check(all(p + MIB, MIB, 0));
	fill(p + MIB, MIB, 6);
	check(mmap(p, 2 * MIB, BOTH, PLAIN | MAP_FIXED_NOREPLACE, -1, 0) ==
	      MAP_FAILED);
	check(errno == EEXIST);
	q = mmap(p + 2 * MIB, MIB, BOTH, PLAIN | MAP_FIXED_NOREPLACE, -1, 0);
	check(q == p + 2 * MIB && all(q, MIB, 0));
	fill(q, MIB, 7);
	/* A call that fails leaves the addresses free. */
	check(mmap(p + 4 * MIB, MIB, BOTH, MAP_SHARED | MAP_FIXED, -1, 0) ==
	      MAP_FAILED);
	check(errno == EBADF);
	check(mmap(p + 4 * MIB, MIB, BOTH, MAP_SHARED | MAP_FIXED, fd, 0) ==
	      p + 4 * MIB);
	fill(p + 4 * MIB, MIB, 9);
	in_child(looks_at_both, p);
	check(holds(p + MIB, MIB, 6) && holds(p + 2 * MIB, MIB, 7));
	q = mmap(p + 6 * MIB, MIB, BOTH, PLAIN, -1, 0); /* a hint */
	check(q != MAP_FAILED && all(q, MIB, 0));
	check(munmap(q, MIB) == 0);
	check(munmap(p + 2 * MIB, 3 * MIB) == 0);
	check(holds(p + MIB, MIB, 6));
	check(munmap(p, 8 * MIB) == 0);
	q = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
	check(q != MAP_FAILED && holds(q, MIB, 9));
	check(munmap(q, MIB) == 0);
	close(fd);
}

/* Anonymous memory where a file was mapped: its bytes are not there, nor written. */
static void over_a_file(int unmapped)
{
	unsigned char *p = mmap(NULL, 4 * MIB, BOTH, PLAIN, -1, 0);
	int fd = memfd_create("mappings", MFD_CLOEXEC);

	check(p != MAP_FAILED && fd >= 0 && ftruncate(fd, 4 * MIB) == 0);
	fill(p, 4 * MIB, 1);
	if (unmapped)
		check(munmap(p, 4 * MIB) == 0);
	check(mmap(p, 4 * MIB, BOTH, MAP_SHARED | MAP_FIXED, fd, 0) == p);
	fill(p, 4 * MIB, 2);
	remap(p, 4 * MIB, BOTH);
	check(all(p, 4 * MIB, 0));
	fill(p, 4 * MIB, 3);
	check(munmap(p, 4 * MIB) == 0);
	p = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0);
	check(p != MAP_FAILED && holds(p, 4 * MIB, 2));
	check(munmap(p, 4 * MIB) == 0);
	close(fd);
}

/* While the allocator may still work on memory that was unmapped a moment ago. */
static void mapped_there_at_once(void)
{
	unsigned char *p, *q;
	size_t bytes;
	int n;

	for (n = 0; n < 40; n++) {
		bytes = (size_t)(16 + n) * MIB;
		p = map(bytes, BOTH, 0);
		memset(p, 1, bytes);
		check(munmap(p, bytes) == 0);
		remap(p + 3 * MIB, 5 * MIB, BOTH);
		check(all(p + 3 * MIB, 5 * MIB, 0));
		memset(p + 3 * MIB, 2, 5 * MIB);
		q = map(8 * MIB, BOTH, 0);
		memset(q, 3, 8 * MIB);
		check(all(p + 3 * MIB, 5 * MIB, 2));
		check(munmap(p + 3 * MIB, 5 * MIB) == 0);
		check(munmap(q, 8 * MIB) == 0);
	}
}

static void refused(void)
{
	unsigned char *p = map(4 * MIB, BOTH, 0);

	check(mmap(NULL, 0, BOTH, PLAIN, -1, 0) == MAP_FAILED);
	check(errno == EINVAL);
	check(mmap(p + 1, MIB, BOTH, PLAIN | MAP_FIXED, -1, 0) == MAP_FAILED);
	check(errno == EINVAL);
	check(mmap(NULL, SIZE_MAX - 4 * PAGE, BOTH, PLAIN, -1, 0) ==
	      MAP_FAILED);
	check(errno == ENOMEM);
	check(munmap(p + 1, PAGE) < 0 && errno == EINVAL);
	check(munmap(p, 0) < 0 && errno == EINVAL);
	check(munmap(p, 4 * MIB) == 0);
}

/* ---- At random, with a model ---------------------------------------------- */

/* Of a page: 0 unmapped, 1 zero, else what it was filled with. */
static struct {
	unsigned char *at;
	uint32_t pages[PAGES];
	size_t n;
} pieces[PIECES];

static void check_piece(int i)
{
	for (size_t n = 0; n < pieces[i].n; n++) {
		unsigned char *p = pieces[i].at + n * PAGE;
		uint32_t state = pieces[i].pages[n];

		if (state == 1)
			check(all(p, PAGE, 0));
		else if (state)
			check(holds(p, PAGE, state));
	}
}

static void check_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < PIECES; i++)
		check_piece(i);
}

static void set_pages(int i, size_t from, size_t n, uint32_t state)
{
	for (size_t k = from; k < from + n; k++)
		pieces[i].pages[k] = state;
}

/* Where the piece has been unmapped, there may be another mapping. */
static void unmap_pages(int i, size_t from, size_t n)
{
	size_t k = from, run;

	for (; k < from + n; k += run) {
		for (run = 0; k + run < from + n && pieces[i].pages[k + run];
		     run++)
			pieces[i].pages[k + run] = 0;
		if (run)
			check(munmap(pieces[i].at + k * PAGE, run * PAGE) == 0);
		else
			run = 1;
	}
}

static void write_pages(int i, size_t from, size_t n, uint32_t *seed)
{
	for (size_t k = from; k < from + n; k++)
		if (pieces[i].pages[k]) {
			pieces[i].pages[k] = ++*seed;
			fill(pieces[i].at + k * PAGE, PAGE, *seed);
		}
}

/* Parent and child go on by themselves for a while. */
static void step(uint64_t *state, uint32_t *seed)
{
	int i = (int)below(state, PIECES);
	size_t from, n;

	if (!pieces[i].n) {
		pieces[i].n = 1 + below(state, PAGES);
		pieces[i].at = map(pieces[i].n * PAGE, BOTH, 0);
		set_pages(i, 0, pieces[i].n, 1);
	}
	from = below(state, pieces[i].n);
	n = 1 + below(state, pieces[i].n - from);
	switch (below(state, 8)) {
	case 0:
		unmap_pages(i, from, n);
		break;
	case 1:
		check_piece(i);
		unmap_pages(i, 0, pieces[i].n);
		pieces[i].n = 0;
		break;
	case 2:
		for (size_t k = from; k < from + n; k++)
			if (!pieces[i].pages[k])
				return; /* another mapping may be there */
		remap(pieces[i].at + from * PAGE, n * PAGE, BOTH);
		set_pages(i, from, n, 1);
		break;
	case 3:
		for (size_t k = from; k < from + n; k++)
			if (pieces[i].pages[k]) {
				check(madvise(pieces[i].at + k * PAGE, PAGE,
				              MADV_DONTNEED) == 0);
				pieces[i].pages[k] = 1;
			}
		break;
	default:
		write_pages(i, from, n < 64 ? n : 64, seed);
	}
}

static void goes_on(void *arg)
{
	uint64_t state = *(uint64_t *)arg;
	uint32_t seed = (uint32_t)state;

	check_all(NULL);
	for (int n = 0; n < 100; n++)
		step(&state, &seed);
	check_all(NULL);
}

static void at_random(uint64_t state)
{
	uint32_t seed = 1000;
	pid_t child = 0;

	for (int n = 0; n < STEPS; n++) {
		step(&state, &seed);
		if (n % 200 != 0)
			continue;
		if (child)
			finish(child);
		child = start(goes_on, &state);
	}
	finish(child);
	check_all(NULL);
	for (int i = 0; i < PIECES; pieces[i++].n = 0)
		unmap_pages(i, 0, pieces[i].n);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_fault };

	check(sigaction(SIGSEGV, &action, NULL) == 0);
	mapped_there_at_once();
	parts();
	reserved();
	moved();
	renewed();
	mapped_there_again();
	over_a_file(0);
	over_a_file(1);
	refused();
	for (uint64_t round = 1; round <= 2; round++)
		at_random(round * 0x9e3779b97f4a7c15);
	puts("mapped and unmapped");
	return 0;
}
