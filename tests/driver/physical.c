/* SPDX-License-Identifier: MIT */
/*
 * Physical memory
 *
 * Each piece is a memfd. Another process imports it as a descriptor, and the kernel frees it
 * with its last holder, also if that was killed. The memfd's name has the device.
 */
#include "tests/driver/ref.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ref_physical *physicals;

void ref_need(bool fine, const char *what)
{
	if (!fine) {
		fprintf(stderr, "reference driver: %s: %m\n", what);
		abort();
	}
}

struct ref_physical *ref_physical_of(uint64_t id)
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

	ref_need(p != NULL, "memory");
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
	ref_need(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0, "memfd");
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

	p = ref_physical_of(handle);
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

	p = ref_physical_of(handle);
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

	p = ref_physical_of(handle);
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
