/* SPDX-License-Identifier: MIT */
/*
 * Test support: the slots of a random program, and the arrays that they must equal
 */
#include "tests/support/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct array *array_new(size_t n, const unsigned char *bytes)
{
	struct array *a = calloc(1, sizeof(*a));

	must(a != NULL);
	a->bytes = calloc(1, n);
	must(a->bytes != NULL);
	a->n = n;
	a->users = 1;
	if (bytes)
		memcpy(a->bytes, bytes, n);
	return a;
}

static unsigned char *sparse_bytes(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(p != MAP_FAILED);
	return p;
}

/* How many bytes of a sparse storage the i-th page that was written has. */
static size_t touched_bytes(const struct array *a, size_t i, size_t n)
{
	return n - a->touched[i] < PAGE ? n - a->touched[i] : PAGE;
}

struct array *array_of(const struct slot *s)
{
	const struct array *from = s->array;
	struct array *a;

	if (!from->sparse) {
		a = array_new(s->n, from->bytes + s->at);
		a->elements = from->elements;
		return a;
	}
	a = malloc(sizeof(*a));
	must(a != NULL);
	*a = (struct array){ .n = s->n, .users = 1, .sparse = true, .touches = from->touches };
	a->bytes = sparse_bytes(s->n);
	memcpy(a->touched, from->touched, sizeof(a->touched));
	for (size_t i = 0; i < a->touches; i++)
		memcpy(a->bytes + a->touched[i], from->bytes + a->touched[i],
		       touched_bytes(a, i, s->n));
	return a;
}

void array_unref(struct array *a)
{
	if (--a->users)
		return;
	if (a->owner)
		owner_ended(a->owner);
	if (a->under) {
		a->under->privates--;
		array_unref(a->under);
	}
	if (a->sparse)
		must(munmap(a->bytes, a->n) == 0);
	else
		free(a->bytes);
	free(a);
}

void slot_take(struct slot *s, struct cow_storage *storage, struct array *a)
{
	*s = (struct slot){ .storage = storage, .array = a, .n = a->n };
}

/* ---- Do they agree? ------------------------------------------------------------ */

int slot_number(const struct program *p, const struct slot *s)
{
	return s >= p->slots && s < p->slots + MODEL_SLOTS ? (int)(s - p->slots) : -1;
}

static void check_bytes(struct program *p, const struct slot *s, size_t from, size_t n)
{
	const unsigned char *is = data(s->storage) + from;
	const unsigned char *should = s->array->bytes + s->at + from;
	size_t i = 0;

	if (memcmp(is, should, n) == 0)
		return;
	while (is[i] == should[i])
		i++;
	program_fails(p, "slot %d, byte %zu of %zu is %d, not %d", slot_number(p, s), from + i, s->n,
	              is[i], should[i]);
}

/* What was written, and a few places that were not. */
static void check_sparse(struct program *p, const struct slot *s)
{
	const struct array *a = s->array;

	for (size_t i = 0; i < a->touches; i++)
		check_bytes(p, s, a->touched[i], touched_bytes(a, i, s->n));
	for (int i = 0; i < 2; i++)
		check_bytes(p, s, draw(p, s->n), 1);
}

void check_slot(struct program *p, const struct slot *s)
{
	const struct owner *owner = s->array->owner;

	if (s->exposed)
		must(data(s->storage) == s->exposed);
	if (owner && owner->runs == (data(s->storage) == owner->data))
		program_fails(p, "external memory, its deleter ran %d times", owner->runs);
	if (s->array->elements) {
		elements_check(p, s);
		return;
	}
	must(cow_storage_bytes(s->storage) == s->n);
	if (s->array->sparse)
		check_sparse(p, s);
	else
		check_bytes(p, s, 0, s->n);
}

void check_all(struct program *p)
{
	for (int i = 0; i < MODEL_SLOTS; i++)
		if (p->slots[i].storage)
			check_slot(p, &p->slots[i]);
}

/* ---- New and gone -------------------------------------------------------------- */

size_t draw_bytes(struct program *p)
{
	return 1 + draw(p, draw(p, 4) ? p->largest : p->largest / 64 + 1);
}

void slot_release(struct program *p, struct slot *s)
{
	struct array *a = s->array;

	if (!s->storage)
		return;
	cow_storage_unref(s->storage);
	*s = (struct slot){ .storage = NULL };
	array_unref(a);
	shm_released(p);
}

void slot_new(struct program *p, struct slot *s)
{
	static const uint32_t kinds[] = { 0, 0, COW_STORAGE_TRANSPARENT, COW_STORAGE_SHAREABLE,
		                          COW_STORAGE_STRICT };
	uint32_t kind = kinds[draw(p, COUNT(kinds))];
	size_t n = draw_bytes(p);

	p->doing = "new";
	slot_take(s, new_storage(n, COW_STORAGE_ZERO | kind), array_new(n, NULL));
	s->array->zero = true;
	if (kind == COW_STORAGE_TRANSPARENT)
		s->exposed = expose(s->storage);
}

/* Larger than all else, with no more than a few pages. */
void slot_new_sparse(struct program *p, struct slot *s)
{
	/* Of what is copied ThreadSanitizer keeps a history, four times as large. */
	size_t n = 32 * MIB + draw(p, UNDER_TSAN ? 16 * MIB : 256 * MIB);
	bool transparent = draw(p, 2);
	struct array *a = malloc(sizeof(*a));

	p->doing = "new sparse";
	must(a != NULL);
	*a = (struct array){ .bytes = sparse_bytes(n), .n = n, .users = 1, .sparse = true };
	slot_take(s, new_storage(n, COW_STORAGE_ZERO | (transparent ? COW_STORAGE_TRANSPARENT : 0)),
	          a);
	if (transparent)
		s->exposed = expose(s->storage);
}

/* ---- Writing -------------------------------------------------------------------- */

size_t slot_range(struct program *p, const struct slot *s, size_t *ret_at)
{
	struct array *a = s->array;
	size_t i, most;

	if (a->privates)
		return 0;
	if (!a->sparse) {
		*ret_at = draw(p, s->n);
		most = s->n - *ret_at;
		return 1 + draw(p, draw(p, 2) ? most : most / 50 + 1);
	}
	i = draw(p, MODEL_TOUCHED);
	if (i >= a->touches) {
		i = a->touches++;
		a->touched[i] = draw(p, s->n) / PAGE * PAGE;
	}
	*ret_at = a->touched[i];
	return 1 + draw(p, touched_bytes(a, i, s->n));
}

void slot_write(struct program *p, struct slot *s)
{
	enum cow_write_hint hint = (enum cow_write_hint)draw(p, 5);
	unsigned char value = (unsigned char)prng_next(&p->prng), *to;
	size_t at, count;

	if (s->array->elements) {
		elements_write(p, s);
		return;
	}
	count = slot_range(p, s, &at);
	if (!count)
		return;
	p->doing = "write";
	/* All of a sparse storage would be copied, or made. */
	if (s->array->sparse && hint != COW_WRITE_ALL)
		hint = COW_WRITE_BY_PAGE;
	else if (draw(p, 4) == 0)
		ok(cow_storages_write_intent(&s->storage, 1, (enum cow_write_hint)draw(p, 2),
		                             NULL));
	if (s->exposed && draw(p, 3))
		to = s->exposed;
	else if (s->array->sparse || draw(p, 4))
		to = mut_range(s->storage, at, count, hint);
	else
		to = mut(s->storage);
	memset(to + at, value, count);
	memset(s->array->bytes + s->at + at, value, count);
}

/* New bytes from old ones, while readers of clones see the old ones. */
void slot_rewrite(struct program *p, struct slot *s)
{
	struct cow_range range = { s->exposed, s->n };
	unsigned char *old = s->array->bytes + s->at, by = (unsigned char)(1 + draw(p, 255));
	bool keep = draw(p, 3);
	struct cow_rewrite *rewrite;
	void *at;
	int r;

	p->doing = "rewrite";
	if (!s->exposed || s->array->sparse || s->array->alias)
		return;
	r = cow_rewrite_begin(&range, &at, &rewrite);
	if (r == -EAGAIN || r == -ENOTSUP || r == -EBUSY)
		return;
	ok(r);
	for (size_t i = 0; i < s->n; i++)
		((unsigned char *)at)[i] = (unsigned char)(s->exposed[i] + by);
	check_slot(p, s);
	ok(cow_rewrite_end(rewrite, keep));
	for (size_t i = 0; keep && i < s->n; i++)
		old[i] = (unsigned char)(old[i] + by);
}

/* ---- Another size --------------------------------------------------------------- */

/* What it grew by is zero or anything, and becomes 0x42. */
static void grown(struct program *p, struct slot *s, size_t old)
{
	unsigned char *to = mut(s->storage);

	for (size_t i = old; i < s->n; i++) {
		if (s->array->zero && to[i])
			program_fails(p, "new byte %zu of %zu is %d", i, s->n, to[i]);
		to[i] = s->array->bytes[i] = 0x42;
	}
}

static void sparse_shrunk(struct array *a, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < a->touches; i++)
		if (a->touched[i] < n)
			a->touched[kept++] = a->touched[i];
	a->touches = kept;
}

void slot_resize(struct program *p, struct slot *s)
{
	size_t n = s->array->sparse ? s->n - draw(p, s->n / 4) : draw_bytes(p), old = s->n;
	struct array *a = s->array;
	int r;

	p->doing = "resize";
	if (a->elements || (a->users > 1 && !a->common) || a->alias)
		return;
	r = cow_storage_resize(s->storage, n);
	if (a->resize == RESIZE_NOT)
		gives(p, -EPERM, r);
	if (r == -EPERM && a->resize != RESIZE_CAN)
		return;
	gives(p, 0, r);
	if (a->sparse) {
		sparse_shrunk(a, n);
	} else {
		a->bytes = realloc(a->bytes, n);
		must(a->bytes != NULL);
		a->n = n;
	}
	s->n = n;
	if (s->exposed)
		s->exposed = expose(s->storage);
	if (!a->sparse)
		grown(p, s, old);
}

/* ---- Clones --------------------------------------------------------------------- */

/* A clone of `from`, made with clones of all the others. */
static struct cow_storage *clone_among(struct program *p, const struct slot *from, int error)
{
	struct cow_storage *all[MODEL_SLOTS], *to[MODEL_SLOTS], *ret = NULL;
	const struct slot *of[MODEL_SLOTS];
	bool elements = false;
	size_t n = 0;

	for (int i = 0; i < MODEL_SLOTS; i++)
		if (p->slots[i].storage) {
			of[n] = &p->slots[i];
			elements |= of[n]->array->elements;
			all[n++] = p->slots[i].storage;
		}
	gives(p, elements ? error : 0, cow_storages_lazy_clone(all, n, NULL, to));
	for (size_t i = 0; i < n; i++) {
		struct slot s = *of[i];
		struct array a = *s.array;

		if (elements && error) {
			must(to[i] == NULL);
			continue;
		}
		a.owner = NULL;
		s.array = &a;
		s.storage = to[i];
		s.exposed = NULL;
		check_slot(p, &s);
		if (of[i] == from)
			ret = to[i];
		else
			cow_storage_unref(to[i]);
	}
	return ret;
}

void slot_clone(struct program *p, struct slot *from, struct slot *to)
{
	size_t how = draw(p, 8);
	int error = draw(p, 6) ? 0 : draw(p, 2) ? -EIO : -ENOMEM;
	struct cow_storage *s = NULL;

	p->doing = how == 0 ? "clone" : how == 1 ? "lazy clones" : "lazy clone";
	elements_fail(error);
	if (how == 1)
		s = clone_among(p, from, error);
	else if (how == 0 && !from->array->sparse)
		gives(p, from->array->elements ? error : 0, cow_storage_clone(from->storage, &s));
	else
		gives(p, from->array->elements ? error : 0,
		      cow_storage_lazy_clone(from->storage, &s));
	elements_fail(0);
	if (s) {
		slot_release(p, to);
		slot_take(to, s, array_of(from));
		/* A clone of what came from elsewhere may be one more reference on it. */
		to->array->resize = RESIZE_MAY;
		check_slot(p, to);
	}
}

/* One more reference: what one writes shows in the other. */
void slot_ref(struct program *p, struct slot *from, struct slot *to)
{
	p->doing = "ref";
	slot_release(p, to);
	*to = *from;
	cow_storage_ref(to->storage);
	to->array->users++;
}

/* ---- What no storage does ------------------------------------------------------- */

void slot_refuses(struct program *p, struct slot *s)
{
	struct cow_storage *none = (struct cow_storage *)p, *found;
	struct cow_data_ptr nothing = { .data = NULL };
	size_t bytes = cow_storage_bytes(s->storage), offset = 1;
	struct cow_storage_options o = { .size = sizeof(o), .flags = 1u << 29 };
	void *to = p;

	p->doing = "refuse";
	gives(p, -EINVAL, cow_storage_data_mut_range(s->storage, bytes, 1, COW_WRITE_AUTO, &to));
	gives(p, -EINVAL, cow_storage_data_mut_range(s->storage, 1, SIZE_MAX, COW_WRITE_ALL, &to));
	gives(p, -EINVAL, cow_storage_data_mut_range(s->storage, 0, 1, (enum cow_write_hint)5, &to));
	gives(p, -EINVAL, cow_storage_swap_data_ptr(s->storage, &nothing, 1));
	gives(p, -EINVAL, cow_storage_new(1 + draw(p, 1000), &o, &none));
	must(to == p && none == (struct cow_storage *)p);
	if (s->array->elements)
		elements_refuse(p, s);
	if (!s->exposed || s->array->alias || s->array->owner || s->array->common ||
	    s->array->under)
		return;
	ok(cow_storage_from_ptr(s->exposed + bytes - 1, &offset, &found));
	must(found == s->storage && offset == bytes - 1);
	cow_storage_unref(found);
}
