/* SPDX-License-Identifier: MIT */
/*
 * Memory of the benchmarks: blocks, mappings, storages, and what the kernel says of them
 *
 * bench/common.h includes this file at its end, and has what it needs. The first touch of memory
 * that the host never gave to this guest costs several times more. So warm_host() touches as much
 * as will be used.
 */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

/* Keeps the compiler from dropping what was computed or written. */
static inline void use(const void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

/* A figure of a "Name:  123 kB" file, in bytes; -1 if it is not there. */
static inline double file_kb(const char *path, const char *name)
{
	char line[256];
	double kb = -1;
	size_t len = strlen(name);
	FILE *f = fopen(path, "re");

	if (!f)
		return -1;
	while (kb < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ':')
			kb = strtod(line + len + 1, NULL) * 1024;
	fclose(f);
	return kb;
}

/* The number that a file in a folder begins with; -1 if there is none. */
static inline double file_number(const char *dir, const char *name)
{
	char path[600];
	double v = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%lf", &v) != 1)
		v = -1;
	fclose(f);
	return v;
}

/* A block of malloc, advised to have huge pages or not. Its bytes are `value`, if that is none
 * below zero. */
static inline char *block_of(size_t bytes, bool huge, int value)
{
	char *p = malloc(bytes);
	uintptr_t at = ((uintptr_t)p + PAGE - 1) & -PAGE;

	if (!p)
		die("malloc of %zu bytes failed", bytes);
	if (huge)
		madvise((void *)at, ((uintptr_t)p + bytes - at) & -PAGE, MADV_HUGEPAGE);
	if (value >= 0)
		memset(p, value, bytes);
	return p;
}

/* `total` bytes in blocks of `each`, all filled; the number of blocks goes to *count. */
static inline char **blocks_of(size_t total, size_t each, bool huge, int value, size_t *count)
{
	char **blocks;

	*count = each ? total / each : 0;
	blocks = calloc(*count + 1, sizeof(*blocks));
	if (!*count || !blocks)
		die("bad size");
	for (size_t i = 0; i < *count; i++)
		blocks[i] = block_of(each, huge, value);
	return blocks;
}

static inline void *map_anonymous(size_t bytes, bool huge)
{
	char *p = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *start = (char *)(((uintptr_t)p + HUGE - 1) & -HUGE);

	if (p == MAP_FAILED)
		die("no %zu bytes of address space", bytes);
	if (start > p)
		munmap(p, start - p);
	if (start < p + HUGE)
		munmap(start + bytes, p + HUGE - start);
	madvise(start, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return start;
}

/* Makes the host back `bytes` of memory (at most 3/4 of MemAvailable). */
static inline void warm_host(size_t bytes)
{
	double free_bytes = file_kb("/proc/meminfo", "MemAvailable");
	volatile char *p;

	if (free_bytes > 0 && bytes > free_bytes * 0.75)
		bytes = (size_t)(free_bytes * 0.75) & -HUGE;
	p = map_anonymous(bytes, true);
	for (size_t i = 0; i < bytes; i += PAGE)
		p[i] = 1;
	/* With transparent_hugepage/enabled=never these pages are small. The host may have
	 * taken back the free huge ones. A side that makes huge pages would pay for that. */
	for (size_t i = 0; i + HUGE <= bytes; i += HUGE)
		madvise((char *)p + i, HUGE, MADV_COLLAPSE);
	munmap((void *)p, bytes);
}

#ifdef COWSHED_H
/* A storage of which all bytes are `value`. Where they are goes to *ret, unless it is NULL. */
static inline struct cow_storage *storage_filled(size_t bytes, uint32_t flags, int value,
                                                 void **ret)
{
	struct cow_storage_options o = { .size = sizeof(o), .flags = flags };
	struct cow_storage *s;
	void *p;

	must(cow_storage_new(bytes, &o, &s));
	must(cow_storage_data_mut_range(s, 0, bytes, COW_WRITE_ALL, &p));
	memset(p, value, bytes);
	if (ret)
		*ret = p;
	return s;
}
#endif

#endif
