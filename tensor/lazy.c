/* SPDX-License-Identifier: MIT */
/*
 * Copies that share pages
 *
 * If each of two tensors is all of its storage, in the same order, a copy can do what a lazy
 * clone does: the destination's storage moves to the allocation of the source's, and gives
 * its own up. Other views of the destination's storage see the copy, too, as they should.
 *
 * If one is a dense part of its storage, and both lie alike in their pages, the whole pages
 * of the part are shared, and the bytes before and behind them are copied
 * (core/cow/copy.h).
 *
 * Nothing is shared if the destination's address was given away, if its memory must not be
 * replaced (external, shared with other processes, of another allocator), or if its pages
 * must be there before they are written (STRICT).
 */
#include "core/storage/storage.h"
#include "core/storage/storage.h"
#include "memfd/page.h"
#include "tensor/copy.h"

static bool
is_whole(const struct cow_tensor *t)
{
	size_t offset, bytes;

	cow__tensor_range(t, &offset, &bytes);
	return offset == 0 && bytes == cow_storage_bytes(t->storage);
}

static bool
lie_alike(const struct cow_tensor *a, const struct cow_tensor *b)
{
	if (a->dtype != b->dtype || a->dims != b->dims || a->conj != b->conj ||
	    a->neg != b->neg)
		return false;
	for (int i = 0; i < a->dims; i++)
		if (a->sizes[i] != b->sizes[i] ||
		    (a->sizes[i] != 1 && a->strides[i] != b->strides[i]))
			return false;
	return cow_tensor_is_dense(a);
}

static bool
replaceable(const struct cow_storage *s)
{
	uint8_t kind = s->data->kind;

	return !cow__transparent(s) && !s->home && !s->elements &&
	       !(s->flags & COW_STORAGE_STRICT) && kind != COW__AT_EXTERNAL &&
	       kind != COW__AT_OTHER;
}

/* Copies bytes [offset, offset + n) of the part, which is at `o` and `f` of the storages. */
static int
copy_bytes(const struct cow_tensor *to, size_t o, const struct cow_tensor *from,
           size_t f, size_t offset, size_t n)
{
	void *data;
	int r;

	if (n == 0)
		return 0;
	r = cow_storage_data_mut_range(to->storage, o + offset, n,
	                               COW_WRITE_AUTO, &data);
	if (r < 0)
		return r;
	memcpy((char *)data + o + offset,
	       (const char *)cow_storage_data(from->storage) + f + offset, n);
	return 0;
}

/* Makes the pages at the ends of a part our own: other bytes of the storage lie in them,
 * too. */
static int
own_ends(const struct cow_tensor *to, size_t o, size_t bytes)
{
	size_t ends[] = { o, o + bytes };
	void *data;
	int r = 0;

	for (int i = 0; i < 2 && r == 0; i++)
		if (ends[i] % cow__page)
			r = cow_storage_data_mut_range(
			        to->storage, ends[i] - (size_t)i, 1,
			        COW_WRITE_BY_PAGE, &data);
	return r;
}

/* Shares the whole pages of a part, and copies less than a page at each end. The copy must
 * not fail once the pages are shared. */
static int
share_part(const struct cow_tensor *to, const struct cow_tensor *from)
{
	size_t o, f, bytes, first, last;
	int r;

	cow__tensor_range(from, &f, &bytes);
	cow__tensor_range(to, &o, &bytes);
	r = own_ends(to, o, bytes);
	if (r < 0)
		return r;
	if (!cow__storage_copy_lazily(to->storage, o, from->storage, f, bytes,
	                              &first, &last))
		return 0;
	r = copy_bytes(to, o, from, f, 0, first);
	if (r == 0)
		r = copy_bytes(to, o, from, f, last, bytes - last);
	return r < 0 ? r : 1;
}

int
cow__tensor_share(struct cow_tensor *to, struct cow_tensor *from)
{
	struct cow_storage *s = to->storage, *t = from->storage, *clone;
	struct cow__allocation *old = s->data;
	int r;

	if (s == t || !lie_alike(to, from) || !replaceable(s) ||
	    cow__unwatched(t) || t->elements || s->allocator != t->allocator ||
	    s->device.type != t->device.type ||
	    s->device.index != t->device.index)
		return 0;
	if (!is_whole(to) || !is_whole(from))
		return share_part(to, from);
	r = cow_storage_lazy_clone(t, &clone);
	if (r < 0)
		return r;
	s->data = clone->data;
	clone->data = old;
	(void)cow_storage_unref(clone);
	return 1;
}
