/* SPDX-License-Identifier: MIT */
/*
 * The whole malloc family, at sizes on both sides of every threshold
 */
#include "program.h"

#include <dlfcn.h>
#include <malloc.h>

static const size_t sizes[] = {
	1,      24,      100,     4000,        4095,        4096,
	4097,   10000,   65535,   65536,       65537,       131072,
	300000, MIB - 1, MIB,     2 * MIB + 1, 5 * MIB,
};

static int have_pvalloc;

/* Some allocators align small blocks for what fits into them. */
static void use(void *p, size_t bytes, uint64_t seed)
{
	check(p != NULL);
	check((uintptr_t)p %
	              (bytes < 32 ? 8 : _Alignof(max_align_t)) == 0);
	check(malloc_usable_size(p) >= bytes);
	fill(p, bytes, seed);
	check(holds(p, bytes, seed));
}

static void each_name(size_t bytes)
{
	size_t alignment, rounded = (bytes + PAGE - 1) / PAGE * PAGE;
	void *p;

	p = malloc(bytes);
	use(p, bytes, 1);
	p = realloc(p, 2 * bytes);
	check(holds(p, bytes, 1));
	use(p, 2 * bytes, 2);
	p = reallocarray(p, 3, bytes);
	check(holds(p, 2 * bytes, 2));
	use(p, 3 * bytes, 3);
	free(p);

	p = calloc(bytes, 1);
	check(all(p, bytes, 0));
	use(p, bytes, 4);
	free(p);
	p = calloc(3, bytes);
	check(all(p, 3 * bytes, 0));
	free(p);

	for (alignment = 8; alignment <= 4 * MIB; alignment *= 2) {
		check(posix_memalign(&p, alignment, bytes) == 0);
		check((uintptr_t)p % alignment == 0);
		use(p, bytes, alignment);
		free(p);
		p = aligned_alloc(alignment, (bytes + alignment - 1) /
		                                     alignment * alignment);
		check((uintptr_t)p % alignment == 0);
		use(p, bytes, alignment + 1);
		free(p);
		p = memalign(alignment, bytes);
		check((uintptr_t)p % alignment == 0);
		use(p, bytes, alignment + 2);
		p = realloc(p, bytes + 5000);
		check(holds(p, bytes, alignment + 2));
		free(p);
	}
	p = valloc(bytes);
	check((uintptr_t)p % PAGE == 0);
	use(p, bytes, 5);
	free(p);
	if (!have_pvalloc)
		return;
	p = pvalloc(bytes);
	check((uintptr_t)p % PAGE == 0);
	use(p, rounded, 6);
	free(p);
}

/* An allocator that lacks it leaves libc's, whose memory it can't free. */
static int same_library(const char *name, const char *other)
{
	Dl_info a, b;

	return dladdr(dlsym(RTLD_DEFAULT, name), &a) &&
	       dladdr(dlsym(RTLD_DEFAULT, other), &b) &&
	       a.dli_fbase == b.dli_fbase;
}

/* C23's, where there are any. */
static void sized_free(size_t bytes)
{
	void (*by_size)(void *, size_t);
	void (*by_alignment)(void *, size_t, size_t);
	void *p;

	by_size = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
	by_alignment = (void (*)(void *, size_t, size_t))dlsym(
		RTLD_DEFAULT, "free_aligned_sized");
	if (by_size != NULL) {
		p = malloc(bytes);
		use(p, bytes, 7);
		by_size(p, bytes);
		by_size(NULL, 0);
	}
	if (by_alignment != NULL) {
		p = aligned_alloc(64, (bytes + 63) / 64 * 64);
		use(p, bytes, 8);
		by_alignment(p, 64, (bytes + 63) / 64 * 64);
		by_alignment(NULL, 64, 0);
	}
}

/* Usable bytes are usable, and realloc keeps those asked for. */
static void usable(size_t bytes)
{
	unsigned char *p = get(bytes);
	size_t more = malloc_usable_size(p);

	fill(p, more, 9);
	check(holds(p, more, 9));
	p = realloc(p, more);
	check(p != NULL && holds(p, more, 9));
	free(p);
	check(malloc_usable_size(NULL) == 0);
}

/* All of them at once, so that they could overlap. */
static void side_by_side(void)
{
	unsigned char *p[8][COUNT(sizes)];
	size_t i, j;

	for (j = 0; j < 8; j++)
		for (i = 0; i < COUNT(sizes); i++)
			p[j][i] = get_filled(sizes[i], j * 100 + i);
	for (j = 0; j < 8; j++)
		for (i = 0; i < COUNT(sizes); i++) {
			check(holds(p[j][i], sizes[i], j * 100 + i));
			free(p[j][i]);
		}
}

int main(void)
{
	size_t i;

	have_pvalloc = same_library("malloc", "pvalloc");
	for (i = 0; i < COUNT(sizes); i++) {
		each_name(sizes[i]);
		sized_free(sizes[i]);
		usable(sizes[i]);
	}
	side_by_side();
	malloc_trim(0);
	side_by_side();
	free(NULL);
	printf("family: %zu sizes\n", COUNT(sizes));
	return 0;
}
