/* SPDX-License-Identifier: MIT */
/*
 * The kernel's clock: see the header.
 *
 * The image is an ELF file in memory. Its dynamic section names the tables of symbols and names.
 * How many symbols there are is in a hash table: the older kind has the number, the newer kind
 * has chains, whose last entries are odd. An image has some ten symbols, so they are compared
 * one by one.
 */
#include "memfd/vdso.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>

#if defined(__x86_64__)
#define NAME "__vdso_clock_gettime"
#elif defined(__aarch64__)
#define NAME "__kernel_clock_gettime"
#endif

typedef int clock_fn(clockid_t, struct timespec *);

struct image {
	uintptr_t moved; /* from the addresses in the file */
	const ElfW(Sym) *symbols;
	const char *names;
	const uint32_t *hash, *gnu_hash;
};

static bool
read_dynamic(struct image *i, const ElfW(Dyn) *d)
{
	for (; d->d_tag != DT_NULL; d++) {
		const void *p = (const void *)(i->moved + d->d_un.d_ptr);

		if (d->d_tag == DT_SYMTAB)
			i->symbols = p;
		else if (d->d_tag == DT_STRTAB)
			i->names = p;
		else if (d->d_tag == DT_HASH)
			i->hash = p;
		else if (d->d_tag == DT_GNU_HASH)
			i->gnu_hash = p;
	}
	return i->symbols && i->names && (i->hash || i->gnu_hash);
}

static bool
read_image(struct image *i, uintptr_t at)
{
	const ElfW(Ehdr) *head = (const void *)at;
	const ElfW(Phdr) *p = (const void *)(at + head->e_phoff);
	const ElfW(Dyn) *dynamic = NULL;
	bool loaded = false;

	for (int n = 0; n < head->e_phnum; n++, p++) {
		if (p->p_type == PT_LOAD && !loaded) {
			i->moved = at + p->p_offset - p->p_vaddr;
			loaded = true;
		} else if (p->p_type == PT_DYNAMIC) {
			dynamic = (const void *)(at + p->p_offset);
		}
	}
	return loaded && dynamic && read_dynamic(i, dynamic);
}

static uint32_t
count_symbols(const struct image *i)
{
	const uint32_t *h = i->gnu_hash, *buckets, *chains;
	uint32_t last = 0;

	if (i->hash)
		return i->hash[1];
	/* Buckets, the first symbol in them, words of a filter, its shift. */
	buckets = h + 4 + h[2] * (sizeof(ElfW(Addr)) / 4);
	chains = buckets + h[0];
	for (uint32_t n = 0; n < h[0]; n++)
		last = buckets[n] > last ? buckets[n] : last;
	if (last < h[1])
		return h[1];
	while (!(chains[last - h[1]] & 1))
		last++;
	return last + 1;
}

static clock_fn *
find_clock(void)
{
	struct image i = { .moved = 0 };
	uintptr_t at = getauxval(AT_SYSINFO_EHDR);
	clock_fn *ret;

	if (!at || !read_image(&i, at))
		return NULL;
	for (uint32_t n = count_symbols(&i); n-- > 0;)
		if (i.symbols[n].st_shndx != SHN_UNDEF &&
		    strcmp(i.names + i.symbols[n].st_name, NAME) == 0) {
			uintptr_t p = i.moved + i.symbols[n].st_value;

			memcpy(&ret, &p, sizeof(ret));
			return ret;
		}
	return NULL;
}

clock_fn *
cow__vdso_clock(void)
{
	static clock_fn *known;
	static bool found;

	if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&known, find_clock(), __ATOMIC_RELAXED);
		__atomic_store_n(&found, true, __ATOMIC_RELEASE);
	}
	return __atomic_load_n(&known, __ATOMIC_RELAXED);
}
