/* SPDX-License-Identifier: MIT */
/*
 * Test support: storages that the program harmed. It unmapped or protected a part of each.
 */
#ifndef COWSHED_TESTS_HARM_H
#define COWSHED_TESTS_HARM_H

#include "core/program/advise.h"
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, Linux 6.13 */

/* ---- What a program does to a part ------------------------------------------- */

static int its_file = -1;

static inline bool map_closed(void *p)
{
	return mmap(p, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	       MAP_FAILED;
}

static inline bool map_behind_end(void *p)
{
	return mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, its_file, 0) != MAP_FAILED;
}

static inline void unmaps(unsigned char *p)
{
	ok(cow__unmap((uintptr_t)p, PAGE));
}

static inline void protects(unsigned char *p)
{
	ok(cow__protect((uintptr_t)p, PAGE, PROT_NONE, -1));
}

static inline void maps_closed(unsigned char *p)
{
	ok(cow__overmap((uintptr_t)p, PAGE, 0, map_closed, p));
}

static inline void maps_an_empty_file(unsigned char *p)
{
	if (its_file < 0)
		its_file = memfd_create("empty", MFD_CLOEXEC);
	must(its_file >= 0);
	ok(cow__overmap((uintptr_t)p, PAGE, 0, map_behind_end, p));
}

/* Older kernels know no guards: then the page is unmapped. */
static inline void guards(unsigned char *p)
{
	if (cow__advise((uintptr_t)p, PAGE, GUARD_INSTALL) < 0)
		unmaps(p);
}

static inline bool map_anew(void *p)
{
	return mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
	            0) != MAP_FAILED;
}

static void (*const harms[])(unsigned char *page) = { unmaps, protects, maps_closed,
	                                              maps_an_empty_file, guards };
enum { HARMS = sizeof(harms) / sizeof(harms[0]) };

/* The bytes of a page, from its pattern's beginning on. */
static inline void page_fill(unsigned char *p)
{
	fill(p, PAGE, 7);
}

/* What was protected still has its bytes. Elsewhere the program maps memory again. */
static inline void mend(unsigned char *page, int harm)
{
	if (harms[harm] == protects)
		ok(cow__protect((uintptr_t)page, PAGE, PROT_READ | PROT_WRITE, -1));
	else
		ok(cow__overmap((uintptr_t)page, PAGE, 0, map_anew, page));
	if (harms[harm] == protects)
		ck_pattern(page, PAGE, 7);
	page_fill(page);
}

/* ---- Storages with such a part ------------------------------------------------ */

/* Bytes before the page, of all. Small ones are copied anyway, large ones are not. */
struct size {
	size_t bytes, at;
};
static const struct size block_sizes[] = { { 5 * PAGE, 2 * PAGE }, { 3 * MIB + 5, MIB } };
enum { SIZES = 2 };

static inline void fill_all(unsigned char *p, const struct size *z)
{
	fill(p, z->at, 1);
	page_fill(p + z->at);
	fill(p + z->at + PAGE, z->bytes - z->at - PAGE, 2);
}

static inline void ck_around(const unsigned char *p, const struct size *z)
{
	ck_pattern(p, z->at, 1);
	ck_pattern(p + z->at + PAGE, z->bytes - z->at - PAGE, 2);
}

static inline void ck_all(const unsigned char *p, const struct size *z)
{
	ck_around(p, z);
	ck_pattern(p + z->at, PAGE, 7);
}

struct block {
	const struct size *z;
	unsigned char *p;
	struct cow_storage *s;
	int harm;
};

/* A block that is found before a part of it goes. `i` chooses size and harm. */
static inline struct block block_harmed(int i)
{
	struct block b = { .z = &block_sizes[i % SIZES], .harm = i / SIZES };

	b.p = new_block(b.z->bytes, 0);
	fill_all(b.p, b.z);
	ok(cow_storage_from_ptr(b.p, NULL, &b.s));
	harms[b.harm](b.p + b.z->at);
	return b;
}

static inline void block_end(struct block *b)
{
	cow_storage_unref(b->s);
	cow_block_free(b->p);
	if (its_file >= 0)
		close(its_file);
	its_file = -1;
}

/* A storage that was cloned lazily, before a part of its memory goes. */
static inline struct block tracked_harmed(int i, struct cow_storage **clone)
{
	struct block b = { .z = &block_sizes[i % SIZES], .harm = i / SIZES };

	b.s = new_storage(b.z->bytes, 0);
	b.p = mut(b.s);
	fill_all(b.p, b.z);
	*clone = lazy(b.s);
	harms[b.harm](b.p + b.z->at);
	return b;
}

static inline void tracked_end(struct block *b)
{
	cow_storage_unref(b->s);
	if (its_file >= 0)
		close(its_file);
	its_file = -1;
}

#endif
