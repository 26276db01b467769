/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory
 *
 * A list of ranges. Their pages are not locked. The list serves to find copies that need
 * pinned memory and use other memory.
 */
#include "tests/driver/ref.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct pinned {
	char *at;
	size_t bytes;
	unsigned flags;
	int device;
	bool ours; /* cuMemHostAlloc's */
	struct pinned *next;
};
static struct pinned *list;

enum ref_pinned ref_pinned(const void *at, size_t bytes)
{
	enum ref_pinned found = REF_UNPINNED;

	for (struct pinned *p = list; p; p = p->next) {
		if ((char *)at >= p->at && (char *)at + bytes <= p->at + p->bytes)
			return REF_PINNED;
		if ((char *)at < p->at + p->bytes && (char *)at + bytes > p->at)
			found = REF_PARTLY;
	}
	return found;
}

static struct pinned *holding(const void *at)
{
	for (struct pinned *p = list; p; p = p->next)
		if ((char *)at >= p->at && (char *)at < p->at + p->bytes)
			return p;
	return NULL;
}

char *ref_host_range(const void *at, size_t *ret_bytes, unsigned *ret_flags, int *ret_device)
{
	struct pinned *p = holding(at);

	if (!p)
		return NULL;
	*ret_bytes = p->bytes;
	*ret_flags = p->flags;
	*ret_device = p->device;
	return p->at;
}

static void add(char *at, size_t bytes, unsigned flags, int device, bool ours)
{
	struct pinned *p = malloc(sizeof(*p));

	if (!p)
		abort();
	*p = (struct pinned){ at, bytes, flags, device, ours, list };
	list = p;
	ref.registered++;
}

static void drop(struct pinned *p)
{
	struct pinned **at = &list;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
	ref.registered--;
}

static struct pinned *starting(const void *at, bool ours)
{
	struct pinned *p = holding(at);

	return p && p->at == at && p->ours == ours ? p : NULL;
}

enum cow__cu_result cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
	ENTER_CONTEXT(host_register);

	if (!host || !bytes || flags & ~15u)
		return COW_CU_INVALID_VALUE;
	if (ref_pinned(host, bytes) != REF_UNPINNED)
		return COW_CU_HOST_MEMORY_ALREADY_REGISTERED;
	add(host, bytes, flags, context->device, false);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemHostUnregister(void *host)
{
	struct pinned *p;
	ENTER_CONTEXT(host_unregister);

	p = starting(host, false);
	if (!p)
		return COW_CU_HOST_MEMORY_NOT_REGISTERED;
	if (ref_pending_on(p->at, p->bytes))
		return ref_undefined(COW_CU_INVALID_VALUE,
		                     "work that has not been done uses %p", host);
	drop(p);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemHostAlloc(void **ret, size_t bytes, unsigned flags)
{
	void *at;
	ENTER_CONTEXT(host_alloc);

	if (!ret || !bytes || flags & ~7u)
		return COW_CU_INVALID_VALUE;
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return COW_CU_OUT_OF_MEMORY;
	madvise(at, bytes, MADV_DONTFORK);
	add(at, bytes, flags, context->device, true);
	*ret = at;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemFreeHost(void *host)
{
	struct pinned *p;
	size_t bytes;
	ENTER_CONTEXT(host_free);

	p = starting(host, true);
	if (!p)
		return ref_undefined(COW_CU_INVALID_VALUE, "%p is not of cuMemHostAlloc", host);
	bytes = p->bytes;
	ref.implicit_waits++;
	ref_wait_context(context);
	drop(p);
	munmap(host, bytes);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemHostGetDevicePointer_v2(cow__cu_ptr *ret, void *host, unsigned flags)
{
	ENTER_CONTEXT(host_get_device_pointer);

	if (!ret || flags)
		return COW_CU_INVALID_VALUE;
	if (!holding(host))
		return COW_CU_INVALID_VALUE;
	*ret = (uintptr_t)host;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemHostGetFlags(unsigned *ret, void *host)
{
	struct pinned *p;
	ENTER_CONTEXT(host_get_flags);

	p = holding(host);
	if (!ret || !p)
		return COW_CU_INVALID_VALUE;
	*ret = p->flags;
	return COW_CU_SUCCESS;
}
