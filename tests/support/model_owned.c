/* SPDX-License-Identifier: MIT */
/*
 * Test support: memory of a random program's own
 *
 * Typed elements know their own address and own memory of the heap, so elements that were copied
 * as bytes, ended twice or not at all are found. External memory is overwritten when its deleter
 * runs, and each deleter is counted.
 */
#include "tests/support/model.h"

#include <cowshed-file.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct cow_device cpu = { COW_DEVICE_CPU, 0 };

struct element {
	struct element *self;
	unsigned char *value;
};

static long living; /* elements of all threads */
static __thread int failing;

void elements_fail(int error)
{
	failing = error;
}

long elements_living(void)
{
	return __atomic_load_n(&living, __ATOMIC_RELAXED);
}

static void construct_one(struct element *e, unsigned char value)
{
	e->self = e;
	e->value = malloc(1);
	must(e->value != NULL);
	*e->value = value;
}

static int construct(void *user, void *to, size_t count)
{
	struct element *e = to;

	must(user == &living);
	if (failing)
		return failing;
	for (size_t i = 0; i < count; i++)
		construct_one(&e[i], 0);
	__atomic_fetch_add(&living, (long)count, __ATOMIC_RELAXED);
	return 0;
}

static int copy(void *user, void *to, const void *from, size_t count)
{
	const struct element *is = from;
	struct element *e = to;

	must(user == &living);
	if (failing)
		return failing;
	for (size_t i = 0; i < count; i++) {
		must(is[i].self == &is[i]);
		construct_one(&e[i], *is[i].value);
	}
	__atomic_fetch_add(&living, (long)count, __ATOMIC_RELAXED);
	return 0;
}

static void destroy(void *user, void *data, size_t count)
{
	struct element *e = data;

	must(user == &living);
	for (size_t i = 0; i < count; i++) {
		must(e[i].self == &e[i]);
		e[i].self = NULL;
		free(e[i].value);
	}
	__atomic_fetch_sub(&living, (long)count, __ATOMIC_RELAXED);
}

static const struct cow_element_hooks hooks = {
	.size = sizeof(hooks), .element_bytes = sizeof(struct element), .copy = copy,
	.destroy = destroy, .construct = construct, .user = &living,
};

static size_t draw_count(struct program *p)
{
	size_t most = p->largest / 64;

	return 1 + draw(p, most < 10 ? 10 : most < 1000 ? most : 1000);
}

void slot_new_elements(struct program *p, struct slot *s)
{
	struct cow_storage_options o = { .size = sizeof(o), .elements = &hooks };
	struct cow_storage *storage = (struct cow_storage *)p;
	size_t n = draw_count(p);

	p->doing = "new elements";
	if (draw(p, 4) == 0) {
		elements_fail(-ENOSPC);
		gives(p, -ENOSPC, cow_storage_new(n * sizeof(struct element), &o, &storage));
		elements_fail(0);
		gives(p, -EINVAL, cow_storage_new(n * sizeof(struct element) - 1, &o, &storage));
		o.flags = draw(p, 2) ? COW_STORAGE_TRANSPARENT : COW_STORAGE_SHAREABLE;
		gives(p, -EOPNOTSUPP, cow_storage_new(n * sizeof(struct element), &o, &storage));
		must(storage == (struct cow_storage *)p);
		o.flags = 0;
	}
	ok(cow_storage_new(n * sizeof(struct element), &o, &storage));
	slot_take(s, storage, array_new(n, NULL));
	s->array->elements = true;
}

static void check_elements(struct program *p, const struct element *e, const struct slot *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (e[i].self != &e[i] || *e[i].value != s->array->bytes[i])
			program_fails(p, "slot %d, element %zu of %zu is wrong",
			              slot_number(p, s), i, s->n);
}

void elements_check(struct program *p, const struct slot *s)
{
	must(cow_storage_bytes(s->storage) == s->n * sizeof(struct element));
	check_elements(p, (const struct element *)(const void *)data(s->storage), s);
}

void elements_write(struct program *p, struct slot *s)
{
	enum cow_write_hint hint = (enum cow_write_hint)draw(p, 5);
	size_t at = draw(p, s->n), count = 1 + draw(p, s->n - at);
	unsigned char value = (unsigned char)prng_next(&p->prng);
	struct element *e;

	p->doing = "write elements";
	e = (struct element *)(void *)mut_range(s->storage, at * sizeof(*e), count * sizeof(*e),
	                                        hint);
	for (size_t i = at; i < at + count; i++) {
		must(e[i].self == &e[i]);
		*e[i].value = value;
	}
	memset(s->array->bytes + at, value, count);
}

void elements_refuse(struct program *p, struct slot *s)
{
	enum cow_share_mode mode = modes[draw(p, 3)];
	struct cow_parcel out = parcel(s->storage, mode);
	struct cow_data_ptr odd = { .data = p };
	uint64_t done = 1, offset = 1;
	int fd = -7;
	void *to = p;

	p->doing = "refuse elements";
	gives(p, -EOPNOTSUPP, cow_storage_resize(s->storage, (s->n + 1) * sizeof(struct element)));
	gives(p, -EOPNOTSUPP, cow_storage_expose(s->storage, &to));
	gives(p, -EOPNOTSUPP, cow_storage_export(s->storage, mode, &fd, &offset));
	gives(p, -EOPNOTSUPP, cow_storage_share_in_place(s->storage));
	gives(p, -EINVAL, cow_storage_swap_data_ptr(s->storage, &odd, sizeof(struct element) + 1));
	must(to == p && fd == -7 && offset == 1 && odd.data == p);
	if (p->alone)
		return;
	gives(p, -EOPNOTSUPP, cow_channel_send(p->own.mine, &out, 1, NULL, 0));
	gives(p, -EOPNOTSUPP, cow_storage_save(s->storage, p->files[0].path, 0, 0, &done));
	must(done == 0);
}

/* ---- External memory ----------------------------------------------------------- */

static void delete_bytes(void *context)
{
	struct owner *o = context;

	must(++o->runs == 1);
	memset(o->start, 0xdb, o->bytes);
	if (o->mapped)
		must(munmap(o->start, o->bytes) == 0);
	else
		free(o->start);
}

void owner_ended(struct owner *o)
{
	must(o->runs == 1);
	free(o);
}

/* On pages or on the heap, aligned for `align`. */
static struct owner *owner_new(struct program *p, size_t n, size_t align)
{
	struct owner *o = calloc(1, sizeof(*o));
	size_t shift = draw(p, 64) * align;

	must(o != NULL);
	o->mapped = draw(p, 2);
	o->bytes = n + shift;
	o->start = o->mapped ? mmap(NULL, o->bytes, PROT_READ | PROT_WRITE,
	                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
	                     : malloc(o->bytes);
	must(o->start != NULL && (void *)o->start != MAP_FAILED);
	o->data = o->start + shift;
	return o;
}

/* External memory with `n` bytes or elements, and the array for it. */
static struct array *external(struct program *p, bool elements, struct cow_data_ptr *ret)
{
	size_t n = elements ? draw_count(p) : draw_bytes(p);
	size_t one = elements ? sizeof(struct element) : 1;
	struct owner *o = owner_new(p, n * one, elements ? sizeof(void *) : 1);
	struct array *a = array_new(n, NULL);

	fill(a->bytes, n, prng_next(&p->prng));
	a->owner = o;
	a->elements = elements;
	if (elements) {
		for (size_t i = 0; i < n; i++)
			construct_one((struct element *)(void *)o->data + i, a->bytes[i]);
		__atomic_fetch_add(&living, (long)n, __ATOMIC_RELAXED);
	} else {
		memcpy(o->data, a->bytes, n);
	}
	*ret = cow_data_ptr_make(o->data, o, delete_bytes, cpu);
	return a;
}

static size_t bytes_of(const struct array *a)
{
	return a->n * (a->elements ? sizeof(struct element) : 1);
}

void slot_new_external(struct program *p, struct slot *s)
{
	struct cow_storage_options o = { .size = sizeof(o) };
	struct cow_storage *storage = (struct cow_storage *)p;
	bool elements = draw(p, 3) == 0;
	struct cow_data_ptr ptr;
	struct array *a;

	p->doing = elements ? "new external elements" : "new external";
	a = external(p, elements, &ptr);
	o.elements = elements ? &hooks : NULL;
	o.allocator = draw(p, 2) ? cow_allocator_default() : NULL;
	a->resize = o.allocator ? RESIZE_CAN : RESIZE_NOT;
	if (draw(p, 2)) { /* without effect */
		o.flags = elements ? 0 : COW_STORAGE_TRANSPARENT | COW_STORAGE_ZERO;
		a->zero = !elements;
	}
	if (draw(p, 4) == 0) {
		o.reserved = 1;
		gives(p, -EINVAL, cow_storage_new_external(&ptr, bytes_of(a), &o, &storage));
		o.reserved = 0;
		gives(p, -EINVAL, cow_storage_new_external(&ptr, SIZE_MAX, &o, &storage));
		must(storage == (struct cow_storage *)p);
		must(ptr.data == a->owner->data && ptr.context == a->owner);
		must(ptr.deleter == delete_bytes && a->owner->runs == 0);
	}
	gives(p, 0, cow_storage_new_external(&ptr, bytes_of(a), &o, &storage));
	must(ptr.data == NULL && ptr.context == NULL);
	slot_take(s, storage, a);
}

/* Bytes of the engine, as its allocator makes them. */
static struct array *engines(struct program *p, struct cow_data_ptr *ret)
{
	struct array *a = array_new(draw_bytes(p), NULL);

	fill(a->bytes, a->n, prng_next(&p->prng));
	ok(cow_allocator_allocate(cow_allocator_default(), a->n, ret));
	memcpy(ret->data, a->bytes, a->n);
	return a;
}

void slot_swap(struct program *p, struct slot *s)
{
	struct array *old = s->array, *a;
	bool elements = old->elements, own = !elements && draw(p, 2);
	struct slot was = *s;
	struct cow_data_ptr ptr;

	p->doing = "swap";
	if (old->alias || old->common || old->under || old->sparse || old->users > 1)
		return;
	a = own ? engines(p, &ptr) : external(p, elements, &ptr);
	gives(p, 0, cow_storage_swap_data_ptr(s->storage, &ptr, bytes_of(a)));
	a->resize = own && old->resize == RESIZE_CAN ? RESIZE_CAN : own ? RESIZE_MAY : RESIZE_NOT;
	a->zero = old->zero;
	*s = (struct slot){ .storage = was.storage, .array = a, .n = a->n };
	if (old->owner)
		must(old->owner->runs || (ptr.context == old->owner && ptr.data == old->owner->data));
	if (elements) {
		check_elements(p, ptr.data, &was);
		destroy(&living, ptr.data, was.n);
	} else {
		if (memcmp(ptr.data, old->bytes, was.n) != 0)
			program_fails(p, "%zu bytes came back wrong", was.n);
		memset(ptr.data, 0xdb, was.n);
	}
	cow_data_ptr_clear(&ptr);
	array_unref(old);
}
