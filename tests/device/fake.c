/* SPDX-License-Identifier: MIT */
/*
 * A device of a third party: see the header.
 */
#include "tests/device/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define INVERT 0xa5

struct memory {
	struct memory *next;
	char *address;
	unsigned char *bytes;
	size_t size;
	int index;
};

struct fake_device_counts fake_device_counts;
static struct memory *memories;

/* The bytes behind an address of device `index`, if all of them are there. */
static unsigned char *behind(int index, const void *address, size_t bytes)
{
	const char *at = address;
	struct memory *m;

	for (m = memories; m != NULL; m = m->next)
		if (m->index == index && at >= m->address &&
		    at + bytes <= m->address + m->size)
			return m->bytes + (at - m->address);
	fake_device_counts.astray++;
	return NULL;
}

static void invert(unsigned char *to, const unsigned char *from, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		to[i] = from[i] ^ INVERT;
}

static int failing(void)
{
	return fake_device_counts.fail_next &&
	       --fake_device_counts.fail_next == 0;
}

/* ---- Memory --------------------------------------------------------------- */

static void deallocate(void *context)
{
	struct memory *m = context, **p;

	for (p = &memories; *p != m; p = &(*p)->next)
		;
	*p = m->next;
	munmap(m->address, m->size);
	free(m->bytes);
	free(m);
	fake_device_counts.live--;
}

static int allocate(struct cow_allocator *self, size_t bytes,
                    struct cow_data_ptr *ret)
{
	struct memory *m = malloc(sizeof(*m));

	if (m == NULL || failing()) {
		free(m);
		return -ENOMEM;
	}
	m->index = self->device.index;
	m->size = bytes;
	m->bytes = malloc(bytes);
	m->address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
	                  -1, 0);
	if (m->bytes == NULL || m->address == MAP_FAILED)
		abort();
	memset(m->bytes, 0x11, bytes);
	m->next = memories;
	memories = m;
	fake_device_counts.live++;
	*ret = cow_data_ptr_make(m->address, m, deallocate, self->device);
	return 0;
}

static int copy_data(struct cow_allocator *self, void *to, const void *from,
                     size_t bytes)
{
	unsigned char *a = behind(self->device.index, to, bytes);
	unsigned char *b = behind(self->device.index, from, bytes);

	if (a == NULL || b == NULL)
		return -EFAULT;
	memmove(a, b, bytes);
	return 0;
}

static struct cow_allocator allocators[2] = {
	{ sizeof(struct cow_allocator), "fake0", { COW_DEVICE_PRIVATE, 0 },
	  allocate, copy_data, NULL },
	{ sizeof(struct cow_allocator), "fake1", { COW_DEVICE_PRIVATE, 1 },
	  allocate, copy_data, NULL },
};

struct cow_allocator *fake_device_memory(int index)
{
	return &allocators[index];
}

/* ---- Late work ------------------------------------------------------------ */

struct late {
	int index, back; /* back: to the host */
	void *host;
	const void *address;
	size_t bytes;
};
static struct late queue[64];
static unsigned long queued, done; /* ever */
static int late;

static void catch_up(unsigned long until)
{
	for (; done < until; done++) {
		struct late *l = &queue[done % 64];
		unsigned char *a = behind(l->index, l->address, l->bytes);

		if (a == NULL)
			continue;
		if (l->back)
			invert(l->host, a, l->bytes);
		else
			invert(a, l->host, l->bytes);
	}
}

static int put_off(int index, int back, void *host, const void *address,
                   size_t bytes, uint32_t flags)
{
	if (!late || !(flags & COW_COPY_NON_BLOCKING) || queued - done == 64) {
		catch_up(queued);
		return 0;
	}
	queue[queued++ % 64] = (struct late){ index, back, host, address, bytes };
	return 1;
}

static int mark(void *user, struct cow_device device, void **ret)
{
	unsigned long *m = malloc(sizeof(*m));

	(void)user;
	(void)device;
	if (m == NULL || failing()) {
		free(m);
		catch_up(queued);
		return -EIO;
	}
	*m = queued;
	*ret = m;
	fake_device_counts.marks++;
	return 0;
}

static int passed(void *user, struct cow_device device, void *m)
{
	(void)user;
	(void)device;
	return failing() ? -EIO : *(unsigned long *)m <= done;
}

static int await(void *user, struct cow_device device, void *m)
{
	(void)user;
	(void)device;
	fake_device_counts.awaits++;
	if (failing())
		return -EIO;
	catch_up(*(unsigned long *)m);
	return 0;
}

static void mark_free(void *user, struct cow_device device, void *m)
{
	(void)user;
	(void)device;
	free(m);
	fake_device_counts.marks--;
}

/* ---- Copies ----------------------------------------------------------------- */

static int from_host(void *user, struct cow_device device, void *to,
                     const void *host, size_t bytes, uint32_t flags)
{
	unsigned char *a = behind(device.index, to, bytes);

	(void)user;
	fake_device_counts.from_host++;
	if (a == NULL || failing())
		return -EIO;
	if (put_off(device.index, 0, (void *)(uintptr_t)host, to, bytes, flags))
		return 0;
	invert(a, host, bytes);
	return 0;
}

static int to_host(void *user, struct cow_device device, void *host,
                   const void *from, size_t bytes, uint32_t flags)
{
	unsigned char *a = behind(device.index, from, bytes);

	(void)user;
	fake_device_counts.to_host++;
	if (a == NULL || failing())
		return -EIO;
	if (put_off(device.index, 1, host, from, bytes, flags))
		return 0;
	invert(host, a, bytes);
	return 0;
}

static int within(void *user, struct cow_device to_device, void *to,
                  struct cow_device from_device, const void *from,
                  size_t bytes, uint32_t flags)
{
	unsigned char *a = behind(to_device.index, to, bytes);
	unsigned char *b = behind(from_device.index, from, bytes);

	(void)user;
	(void)flags;
	catch_up(queued);
	fake_device_counts.within++;
	if (a == NULL || b == NULL || failing())
		return -EIO;
	memmove(a, b, bytes);
	return 0;
}

static int strided(void *user, struct cow_device device, int dims,
                   const int64_t *sizes, void *to, enum cow_dtype to_dtype,
                   const int64_t *to_strides, const void *from,
                   enum cow_dtype from_dtype, const int64_t *from_strides,
                   bool conj, bool neg, uint32_t flags)
{
	size_t item = cow_dtype_bytes(to_dtype);
	unsigned char *a, *b;
	int64_t i;
	int r = 0;

	if (to_dtype != from_dtype || conj || neg) {
		fake_device_counts.refused++;
		return -ENOTSUP;
	}
	if (dims > 0) {
		for (i = 0; i < sizes[0] && r == 0; i++)
			r = strided(user, device, dims - 1, sizes + 1,
			            (char *)to + i * to_strides[0] * (int64_t)item,
			            to_dtype, to_strides + 1,
			            (const char *)from +
			                    i * from_strides[0] * (int64_t)item,
			            from_dtype, from_strides + 1, conj, neg,
			            flags);
		return r;
	}
	catch_up(queued);
	fake_device_counts.strided++;
	a = behind(device.index, to, item);
	b = behind(device.index, from, item);
	if (a == NULL || b == NULL || failing())
		return -EIO;
	memmove(a, b, item);
	return 0;
}

static struct cow_device_ops ops;

void fake_device_start(enum fake_skill skill)
{
	memset(&fake_device_counts, 0, sizeof(fake_device_counts));
	ops = (struct cow_device_ops){
		.size = sizeof(ops),
		.name = "the fake device",
		.from_host = from_host,
		.to_host = to_host,
		.within = skill >= FAKE_WITHIN ? within : NULL,
		.strided = skill >= FAKE_STRIDED ? strided : NULL,
		.mark = mark,
		.passed = passed,
		.await = await,
		.mark_free = mark_free,
	};
	if (cow_device_set(COW_DEVICE_PRIVATE, &ops) != 0 ||
	    cow_allocator_set(allocators[0].device, &allocators[0], 0) != 0 ||
	    cow_allocator_set(allocators[1].device, &allocators[1], 0) != 0)
		abort();
}

void fake_device_late(void)
{
	late = 1;
}

void fake_device_stop(void)
{
	late = 0;
	catch_up(queued);
	cow_device_set(COW_DEVICE_PRIVATE, NULL);
	cow_allocator_set(allocators[0].device, NULL, 0);
	cow_allocator_set(allocators[1].device, NULL, 0);
}
