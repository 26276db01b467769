/* SPDX-License-Identifier: MIT */
/*
 * cuMemAlloc, cuMemAllocAsync, and attributes of pointers
 *
 * Each allocation has granules of its own, so a byte behind its end belongs to no allocation.
 * The real driver puts several small ones into one granule.
 */
#include "tests/driver/ref.h"

#include <stdlib.h>
#include <string.h>

static enum cow__cu_result alloc(struct cow__cu_context *context, cow__cu_ptr *ret,
                                 size_t bytes)
{
	size_t n = (bytes + SLOT - 1) / SLOT;
	struct ref_physical *p;
	struct ref_mapping *m;
	enum cow__cu_result r;
	char *at;

	if (!ret || !bytes)
		return COW_CU_INVALID_VALUE;
	if (bytes > WINDOW)
		return COW_CU_OUT_OF_MEMORY;
	r = ref_physical_new(context->device, n * SLOT, 0, &p);
	if (r != COW_CU_SUCCESS)
		return r;
	p->refs = 0; /* the mapping alone holds it */
	at = ref_reserve(n, 1, NULL);
	if (!at) {
		ref_physical_drop(p);
		return COW_CU_OUT_OF_MEMORY;
	}
	r = ref_map(at, n * SLOT, p, &m);
	if (r != COW_CU_SUCCESS)
		abort();
	m->bytes = bytes;
	m->plain = true;
	m->access[context->device] = COW_CU_ACCESS_READWRITE;
	*ret = (uintptr_t)at;
	return COW_CU_SUCCESS;
}

void ref_free_plain(struct ref_mapping *m)
{
	char *at = m->at;
	size_t n = m->slots;

	ref_unmap(m);
	if (!ref_unreserve(at, n))
		abort();
}

enum cow__cu_result cuMemAlloc_v2(cow__cu_ptr *ret, size_t bytes)
{
	ENTER_CONTEXT(mem_alloc);

	return alloc(context, ret, bytes);
}

static struct ref_mapping *plain_at(cow__cu_ptr ptr)
{
	struct ref_mapping *m = ref_mapping_at((char *)(uintptr_t)ptr);

	return m && m->plain && !m->freed && m->at == (char *)(uintptr_t)ptr ? m : NULL;
}

enum cow__cu_result cuMemFree_v2(cow__cu_ptr ptr)
{
	struct ref_mapping *m;
	ENTER_CONTEXT(mem_free);

	if (!ptr)
		return COW_CU_SUCCESS;
	m = plain_at(ptr);
	if (!m)
		return ref_undefined(COW_CU_INVALID_VALUE, "%#llx was not allocated, or freed",
		                     ptr);
	/* It waits for all that the device does, as is known of it. */
	ref.implicit_waits++;
	m->freed = true;
	ref_wait_context(context);
	if (ref_contexts[m->physical->device].retained)
		ref_wait_context(&ref_contexts[m->physical->device]);
	ref_free_plain(m);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemAllocAsync(cow__cu_ptr *ret, size_t bytes,
                                    struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(mem_alloc_async);

	ref_result = ref_stream(context, &stream);
	return ref_result != COW_CU_SUCCESS ? ref_result : alloc(stream->context, ret, bytes);
}

static void nothing(struct ref_work *work)
{
	(void)work;
}

static void free_late(struct ref_work *work)
{
	ref_free_plain(*(struct ref_mapping **)work->data);
}

enum cow__cu_result cuMemFreeAsync(cow__cu_ptr ptr, struct cow__cu_stream *stream)
{
	struct ref_mapping *m;
	struct ref_work *work;
	ENTER_CONTEXT(mem_free_async);

	ref_result = ref_stream(context, &stream);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	m = plain_at(ptr);
	if (!m)
		return ref_undefined(COW_CU_INVALID_VALUE, "%#llx was not allocated, or freed",
		                     ptr);
	m->freed = true;
	work = ref_work_new(context, stream, nothing, sizeof(m));
	*(struct ref_mapping **)work->data = m;
	work->finish = free_late;
	ref_submit(work);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	ENTER_CONTEXT(mem_get_info);

	if (!ret_free || !ret_total)
		return COW_CU_INVALID_VALUE;
	*ret_total = (size_t)ref.settings[REF_MEMORY];
	*ret_free = *ret_total > ref.used[context->device]
	                    ? *ret_total - ref.used[context->device] : 0;
	return COW_CU_SUCCESS;
}

/* ---- Pointers ------------------------------------------------------------ */

static enum cow__cu_result attribute_of(void *ret, unsigned attribute, char *at)
{
	struct ref_mapping *m = ref_mapping_at(at);
	size_t bytes = 0;
	unsigned flags;
	int device = 0;
	char *host = m ? NULL : ref_host_range(at, &bytes, &flags, &device);

	if (attribute == COW_CU_POINTER_MAPPED) {
		*(int *)ret = m || host;
		return COW_CU_SUCCESS;
	}
	if (!m && !host)
		return COW_CU_INVALID_VALUE;
	switch (attribute) {
	case COW_CU_POINTER_CONTEXT:
		/* Memory of cuMemMap() belongs to a device, to no context. */
		*(void **)ret = m && !m->plain ? NULL
		                : &ref_contexts[m ? m->physical->device : device];
		return COW_CU_SUCCESS;
	case COW_CU_POINTER_MEMORY_TYPE:
		*(unsigned *)ret = m ? COW_CU_MEMORY_DEVICE : COW_CU_MEMORY_HOST;
		return COW_CU_SUCCESS;
	case COW_CU_POINTER_DEVICE_POINTER:
		*(char **)ret = at;
		return COW_CU_SUCCESS;
	case COW_CU_POINTER_HOST_POINTER:
		if (m)
			return COW_CU_INVALID_VALUE;
		*(char **)ret = at;
		return COW_CU_SUCCESS;
	case COW_CU_POINTER_IS_MANAGED:
		*(int *)ret = 0;
		return COW_CU_SUCCESS;
	case COW_CU_POINTER_DEVICE_ORDINAL:
		*(int *)ret = m ? m->physical->device : device;
		return COW_CU_SUCCESS;
	case COW_CU_POINTER_RANGE_START:
		*(char **)ret = m ? m->at : host;
		return COW_CU_SUCCESS;
	case COW_CU_POINTER_RANGE_SIZE:
		*(size_t *)ret = m ? m->bytes : bytes;
		return COW_CU_SUCCESS;
	case COW_CU_POINTER_BUFFER_ID:
		*(unsigned long long *)ret = m ? m->physical->id : (uintptr_t)host;
		return COW_CU_SUCCESS;
	default:
		return COW_CU_INVALID_VALUE;
	}
}

enum cow__cu_result cuPointerGetAttribute(void *ret, unsigned attribute, cow__cu_ptr ptr)
{
	ENTER_CONTEXT(pointer_get_attribute);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	return attribute_of(ret, attribute, (char *)(uintptr_t)ptr);
}

/* Of an unknown pointer all are zero, and that is no error. */
enum cow__cu_result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **ret,
                                           cow__cu_ptr ptr)
{
	ENTER_CONTEXT(pointer_get_attributes);

	if (!attributes || !ret || !count)
		return COW_CU_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++)
		if (attribute_of(ret[i], attributes[i], (char *)(uintptr_t)ptr) != COW_CU_SUCCESS)
			switch (attributes[i]) {
			case COW_CU_POINTER_MEMORY_TYPE:
			case COW_CU_POINTER_IS_MANAGED:
			case COW_CU_POINTER_MAPPED:
				*(unsigned *)ret[i] = 0;
				break;
			case COW_CU_POINTER_DEVICE_ORDINAL:
				*(int *)ret[i] = -2;
				break;
			default:
				*(void **)ret[i] = NULL;
			}
	return COW_CU_SUCCESS;
}
