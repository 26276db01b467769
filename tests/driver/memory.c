/* SPDX-License-Identifier: MIT */
/*
 * Address ranges, mappings, access
 *
 * There are two windows of addresses. Device pointers lie in the first, which the host must
 * not touch: as on hardware, reading one crashes. The same memfd is mapped again at the same
 * place of the second window, the shadow, through which the driver copies. A kernel uses
 * plain pointers into the first window. So while a kernel runs, the window is open for the
 * memory that its device may touch (ref_window_open()). Kernels run one at a time.
 */
#include "tests/driver/ref.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct ref_mapping *slots[SLOTS];
static uint32_t reserved[SLOTS]; /* the number of the reservation, or 0 */
static size_t used_end;          /* slots from here on were never used */

bool ref_in_window(const void *at)
{
	return (char *)at >= ref.window && (char *)at < ref.window + WINDOW;
}

static size_t slot_of(const void *at)
{
	return (size_t)((char *)at - ref.window) / SLOT;
}

struct ref_mapping *ref_mapping_at(const void *at)
{
	return ref.window && ref_in_window(at) ? slots[slot_of(at)] : NULL;
}

unsigned ref_access_of(const struct ref_mapping *m, int device)
{
	if (m->plain && device != m->physical->device)
		return ref_contexts[device].peer[m->physical->device]
		               ? COW_CU_ACCESS_READWRITE
		               : COW_CU_ACCESS_NONE;
	return m->access[device];
}

enum cow__cu_result ref_resolve(const char *at, size_t bytes, int device, bool write,
                                char **ret)
{
	const char *end = at + bytes, *p = at;

	while (p < end) {
		struct ref_mapping *m = ref_mapping_at(p);
		unsigned access, wanted = write ? COW_CU_ACCESS_READWRITE : COW_CU_ACCESS_READ;

		if (!m || p >= m->at + m->bytes)
			return COW_CU_INVALID_VALUE;
		if (m->freed)
			return ref_undefined(COW_CU_INVALID_VALUE,
			                     "%p was given to cuMemFreeAsync", (void *)p);
		/* The driver copies memory of cuMemAlloc() between any devices. */
		access = m->plain ? COW_CU_ACCESS_READWRITE : ref_access_of(m, device);
		if ((access & wanted) != wanted)
			return ref_undefined(COW_CU_ILLEGAL_ADDRESS,
			                     "device %d has no access to %p (to %s): "
			                     "cuMemSetAccess gives it",
			                     device, (void *)p, write ? "write" : "read");
		p = m->at + m->slots * SLOT;
		/* Allocations end where they were asked to, inside a granule. */
		if (end > m->at + m->bytes && m->bytes != m->slots * SLOT)
			return COW_CU_INVALID_VALUE;
	}
	*ret = ref.shadow + (at - ref.window);
	return COW_CU_SUCCESS;
}

/* ---- Addresses ----------------------------------------------------------- */

char *ref_reserve(size_t n, size_t align, char *wish)
{
	static uint32_t numbers;
	size_t from = 0, run = 0, i;

	if (wish && ref_in_window(wish) && (wish - ref.window) % (ptrdiff_t)SLOT == 0) {
		from = slot_of(wish);
		while (run < n && from + run < SLOTS && !reserved[from + run])
			run++;
	}
	for (i = run == n ? SLOTS : 0, run = run == n ? n : 0; i < SLOTS && run < n; i++) {
		if (run == 0 && ((uintptr_t)ref.window / SLOT + i) % align)
			continue;
		if (reserved[i]) {
			run = 0;
			continue;
		}
		if (run++ == 0)
			from = i;
	}
	if (run < n)
		return NULL;
	numbers++;
	for (i = 0; i < n; i++)
		reserved[from + i] = numbers;
	if (from + n > used_end)
		used_end = from + n;
	ref.reservations++;
	return ref.window + from * SLOT;
}

bool ref_unreserve(char *at, size_t n)
{
	size_t from, i;
	uint32_t number;

	if (!ref_in_window(at) || (at - ref.window) % (ptrdiff_t)SLOT)
		return false;
	from = slot_of(at);
	number = reserved[from];
	if (!number || !n || from + n > SLOTS || (from && reserved[from - 1] == number) ||
	    (from + n < SLOTS && reserved[from + n] == number))
		return false;
	for (i = 0; i < n; i++)
		if (reserved[from + i] != number || slots[from + i])
			return false;
	memset(reserved + from, 0, n * sizeof(*reserved));
	ref.reservations--;
	return true;
}

enum cow__cu_result cuMemAddressReserve(cow__cu_ptr *ret, size_t bytes, size_t alignment,
                                        cow__cu_ptr wish, unsigned long long flags)
{
	char *at;
	ENTER(mem_address_reserve);

	if (!ret || flags || !bytes || bytes % SLOT || (alignment & (alignment - 1)))
		return COW_CU_INVALID_VALUE;
	at = ref_reserve(bytes / SLOT, alignment > SLOT ? alignment / SLOT : 1,
	                 (char *)(uintptr_t)wish);
	if (!at)
		return COW_CU_OUT_OF_MEMORY;
	*ret = (uintptr_t)at;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemAddressFree(cow__cu_ptr ptr, size_t bytes)
{
	ENTER(mem_address_free);

	if (bytes % SLOT || !ref_unreserve((char *)(uintptr_t)ptr, bytes / SLOT))
		return COW_CU_INVALID_VALUE;
	return COW_CU_SUCCESS;
}

/* ---- Mappings ------------------------------------------------------------ */

static void host_map(char *at, size_t bytes, int prot, int fd)
{
	/* Whole pages: a file that ends before gives SIGBUS, which no one touches. */
	ref_need(mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == at, "mmap");
	madvise(at, bytes, MADV_DONTFORK);
}

static void host_clear(char *at, size_t bytes)
{
	ref_need(mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
	          -1, 0) == at, "mmap");
	madvise(at, bytes, MADV_DONTFORK);
}

enum cow__cu_result ref_map(char *at, size_t bytes, struct ref_physical *p,
                            struct ref_mapping **ret)
{
	size_t n = (bytes + SLOT - 1) / SLOT, first = slot_of(at), i;
	struct ref_mapping *m;

	for (i = 0; i < n; i++)
		if (!reserved[first + i] || reserved[first + i] != reserved[first])
			return COW_CU_INVALID_VALUE;
	for (i = 0; i < n; i++)
		if (slots[first + i])
			return COW_CU_ALREADY_MAPPED;
	m = calloc(1, sizeof(*m));
	ref_need(m != NULL, "memory");
	*m = (struct ref_mapping){ .at = at, .bytes = bytes, .slots = n, .physical = p };
	p->maps++;
	ref.mappings++;
	for (i = 0; i < n; i++)
		slots[first + i] = m;
	host_map(at, p->bytes, PROT_NONE, p->fd);
	host_map(ref.shadow + (at - ref.window), p->bytes, PROT_READ | PROT_WRITE, p->fd);
	*ret = m;
	return COW_CU_SUCCESS;
}

void ref_unmap(struct ref_mapping *m)
{
	size_t first = slot_of(m->at);

	host_clear(m->at, m->slots * SLOT);
	host_clear(ref.shadow + (m->at - ref.window), m->slots * SLOT);
	for (size_t i = 0; i < m->slots; i++)
		slots[first + i] = NULL;
	m->physical->maps--;
	ref_physical_drop(m->physical);
	ref.mappings--;
	free(m);
}

/* All of [at, at + bytes) is whole mappings of cuMemMap(). */
static bool whole(const char *at, size_t bytes)
{
	const char *end = at + bytes;

	if (!bytes)
		return false;
	while (at < end) {
		struct ref_mapping *m = ref_mapping_at(at);

		if (!m || m->plain || m->at != at)
			return false;
		at += m->slots * SLOT;
	}
	return at == end;
}

enum cow__cu_result cuMemMap(cow__cu_ptr ptr, size_t bytes, size_t offset,
                             cow__cu_handle handle, unsigned long long flags)
{
	char *at = (char *)(uintptr_t)ptr;
	struct ref_physical *p;
	struct ref_mapping *m;
	ENTER(mem_map);

	p = ref_physical_of(handle);
	/* A handle is mapped whole or not at all. */
	if (!p || flags || offset || bytes != p->bytes || ptr % SLOT || !ref_in_window(at) ||
	    bytes > (size_t)(ref.window + WINDOW - at))
		return COW_CU_INVALID_VALUE;
	return ref_map(at, bytes, p, &m);
}

enum cow__cu_result cuMemUnmap(cow__cu_ptr ptr, size_t bytes)
{
	char *at = (char *)(uintptr_t)ptr, *end = at + bytes;
	ENTER(mem_unmap);

	if (!whole(at, bytes))
		return COW_CU_INVALID_VALUE;
	if (ref_pending_on(at, bytes))
		return ref_undefined(COW_CU_INVALID_VALUE,
		                     "work that has not been done uses %p", (void *)at);
	while (at < end) {
		struct ref_mapping *m = ref_mapping_at(at);

		at += m->slots * SLOT;
		ref_unmap(m);
	}
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemSetAccess(cow__cu_ptr ptr, size_t bytes,
                                   const struct cow__cu_access *access, size_t count)
{
	char *at = (char *)(uintptr_t)ptr, *end = at + bytes;
	ENTER(mem_set_access);

	if (!access || !count || !whole(at, bytes))
		return COW_CU_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (access[i].location.type != COW_CU_LOCATION_DEVICE ||
		    access[i].flags == 2 || access[i].flags > 3)
			return COW_CU_INVALID_VALUE;
		if (!ref_device_ok(access[i].location.id))
			return COW_CU_INVALID_DEVICE;
	}
	for (char *p = at; p < end; p += ref_mapping_at(p)->slots * SLOT)
		for (size_t i = 0; i < count; i++) {
			int d = ref_mapping_at(p)->physical->device, to = access[i].location.id;

			if (d != to && !ref_peers(to, d))
				return COW_CU_NOT_SUPPORTED;
		}
	for (char *p = at; p < end; p += ref_mapping_at(p)->slots * SLOT)
		for (size_t i = 0; i < count; i++)
			ref_mapping_at(p)->access[access[i].location.id] = access[i].flags;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemGetAccess(unsigned long long *ret,
                                   const struct cow__cu_location *location, cow__cu_ptr ptr)
{
	struct ref_mapping *m;
	ENTER(mem_get_access);

	m = ref_mapping_at((char *)(uintptr_t)ptr);
	if (!ret || !location || !m || location->type != COW_CU_LOCATION_DEVICE ||
	    !ref_device_ok(location->id))
		return COW_CU_INVALID_VALUE;
	*ret = ref_access_of(m, location->id);
	return COW_CU_SUCCESS;
}

/* ---- For kernels --------------------------------------------------------- */

void ref_window_open(int device)
{
	static const int prots[] = { PROT_NONE, PROT_READ, PROT_NONE, PROT_READ | PROT_WRITE };
	size_t i = 0, from;

	/* Neighbours with the same rights in one call. */
	while (i < used_end) {
		unsigned a = slots[i] ? ref_access_of(slots[i], device) : 0;

		for (from = i++; i < used_end; i++)
			if ((slots[i] ? ref_access_of(slots[i], device) : 0) != a)
				break;
		if (a)
			ref_need(mprotect(ref.window + from * SLOT, (i - from) * SLOT,
			              prots[a]) == 0, "mprotect");
	}
}

void ref_window_close(void)
{
	if (used_end)
		ref_need(mprotect(ref.window, used_end * SLOT, PROT_NONE) == 0, "mprotect");
}
