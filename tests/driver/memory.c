/* SPDX-License-Identifier: MIT */
/*
 * Physical memory, address ranges, mappings, access
 *
 * Two windows of addresses. What the program gets lies in the first, where the host
 * may touch nothing, as on hardware: reading a device pointer crashes. The same
 * memfd is mapped again at the same place of the second, the shadow, through which
 * the driver copies. A kernel uses plain pointers into the first, so while one runs,
 * the window is open for what its device may touch (ref_window_open()); kernels run one
 * at a time.
 *
 * Physical memory is a memfd: another process imports it as a descriptor, and the
 * kernel frees it with its last holder, however that ended.
 */
#include "tests/driver/ref.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ref_physical *physicals;
static struct ref_mapping *slots[SLOTS];
static uint32_t reserved[SLOTS]; /* the number of the reservation, or 0 */
static size_t used_end;          /* slots from here on were never used */

static void need(bool fine, const char *what)
{
	if (!fine) {
		fprintf(stderr, "reference driver: %s: %m\n", what);
		abort();
	}
}

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

/* ---- Physical memory ----------------------------------------------------- */

static struct ref_physical *physical_of(uint64_t id)
{
	struct ref_physical *p = physicals;

	while (p && p->id != id)
		p = p->next;
	return p && p->refs ? p : NULL;
}

static struct ref_physical *physical_add(int fd, int device, size_t bytes, unsigned types)
{
	static uint64_t ids = 0x1000;
	struct ref_physical *p = calloc(1, sizeof(*p));

	need(p != NULL, "memory");
	*p = (struct ref_physical){ .id = ids += 16, .fd = fd, .device = device,
		                    .bytes = bytes, .handle_types = types, .refs = 1,
		                    .next = physicals };
	physicals = p;
	ref.handles++;
	return p;
}

enum cow__cu_result ref_physical_new(int device, size_t bytes, unsigned types,
                                     struct ref_physical **ret)
{
	char name[64];
	int fd;

	if (ref.used[device] + bytes > (size_t)ref.settings[REF_MEMORY] ||
	    ref.handles >= (size_t)ref.settings[REF_MAX_HANDLES])
		return COW_CU_OUT_OF_MEMORY;
	snprintf(name, sizeof(name), "cowref-%d-%u", device, types);
	fd = memfd_create(name, MFD_CLOEXEC);
	need(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0, "memfd");
	*ret = physical_add(fd, device, bytes, types);
	(*ret)->ours = true;
	ref.used[device] += bytes;
	return COW_CU_SUCCESS;
}

void ref_physical_drop(struct ref_physical *p)
{
	struct ref_physical **at = &physicals;

	if (p->refs || p->maps)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	close(p->fd);
	if (p->ours)
		ref.used[p->device] -= p->bytes;
	ref.handles--;
	free(p);
}

static enum cow__cu_result check_prop(const struct cow__cu_prop *prop)
{
	if (!prop || prop->type != COW_CU_ALLOCATION_PINNED ||
	    prop->location.type != COW_CU_LOCATION_DEVICE)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(prop->location.id))
		return COW_CU_INVALID_DEVICE;
	return prop->handle_types & ~(unsigned)COW_CU_HANDLE_FD ? COW_CU_NOT_SUPPORTED
	                                                        : COW_CU_SUCCESS;
}

enum cow__cu_result cuMemGetAllocationGranularity(size_t *ret, const struct cow__cu_prop *prop,
                                                  unsigned option)
{
	ENTER(mem_get_granularity);

	if (!ret || option > COW_CU_GRANULARITY_RECOMMENDED)
		return COW_CU_INVALID_VALUE;
	ref_result = check_prop(prop);
	if (ref_result == COW_CU_SUCCESS)
		*ret = SLOT;
	return ref_result;
}

enum cow__cu_result cuMemCreate(cow__cu_handle *ret, size_t bytes,
                                const struct cow__cu_prop *prop, unsigned long long flags)
{
	struct ref_physical *p;
	ENTER(mem_create);

	if (!ret || flags || !bytes || bytes % SLOT)
		return COW_CU_INVALID_VALUE;
	ref_result = check_prop(prop);
	if (ref_result == COW_CU_SUCCESS)
		ref_result = ref_physical_new(prop->location.id, bytes, prop->handle_types, &p);
	if (ref_result == COW_CU_SUCCESS)
		*ret = p->id;
	return ref_result;
}

enum cow__cu_result cuMemRelease(cow__cu_handle handle)
{
	struct ref_physical *p;
	ENTER(mem_release);

	p = physical_of(handle);
	if (!p)
		return ref_undefined(COW_CU_INVALID_VALUE, "%#llx is no handle", handle);
	p->refs--;
	ref_physical_drop(p);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemRetainAllocationHandle(cow__cu_handle *ret, void *ptr)
{
	struct ref_mapping *m;
	ENTER(mem_retain);

	m = ref_mapping_at(ptr);
	if (!ret || !m || m->plain)
		return COW_CU_INVALID_VALUE;
	m->physical->refs++;
	*ret = m->physical->id;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemGetAllocationPropertiesFromHandle(struct cow__cu_prop *ret,
                                                           cow__cu_handle handle)
{
	struct ref_physical *p;
	ENTER(mem_get_prop);

	p = physical_of(handle);
	if (!ret || !p)
		return COW_CU_INVALID_VALUE;
	*ret = (struct cow__cu_prop){ .type = COW_CU_ALLOCATION_PINNED,
		                      .handle_types = p->handle_types,
		                      .location = { COW_CU_LOCATION_DEVICE, p->device } };
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemExportToShareableHandle(void *ret, cow__cu_handle handle,
                                                 unsigned type, unsigned long long flags)
{
	struct ref_physical *p;
	int fd;
	ENTER(mem_export);

	p = physical_of(handle);
	if (!ret || !p || flags || type != COW_CU_HANDLE_FD ||
	    !(p->handle_types & COW_CU_HANDLE_FD))
		return COW_CU_INVALID_VALUE;
	fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return COW_CU_OPERATING_SYSTEM;
	*(int *)ret = fd;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemImportFromShareableHandle(cow__cu_handle *ret, void *shareable,
                                                   unsigned type)
{
	char path[64], target[128] = "";
	int fd = (int)(intptr_t)shareable, device;
	unsigned types;
	struct stat st;
	ENTER(mem_import);

	if (!ret || type != COW_CU_HANDLE_FD)
		return COW_CU_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target) - 1) < 0 ||
	    sscanf(target, "/memfd:cowref-%d-%u", &device, &types) != 2 ||
	    fstat(fd, &st) < 0 || !ref_device_ok(device))
		return COW_CU_INVALID_VALUE;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return COW_CU_OPERATING_SYSTEM;
	*ret = physical_add(fd, device, (size_t)st.st_size, types)->id;
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
		if (run == 0 && i % align)
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
	need(mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == at, "mmap");
	madvise(at, bytes, MADV_DONTFORK);
}

static void host_clear(char *at, size_t bytes)
{
	need(mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
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
	need(m != NULL, "memory");
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

	p = physical_of(handle);
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
			need(mprotect(ref.window + from * SLOT, (i - from) * SLOT,
			              prots[a]) == 0, "mprotect");
	}
}

void ref_window_close(void)
{
	if (used_end)
		need(mprotect(ref.window, used_end * SLOT, PROT_NONE) == 0, "mprotect");
}
