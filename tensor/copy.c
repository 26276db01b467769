/* SPDX-License-Identifier: MIT */
/*
 * Copies between tensors: refuses what is not allowed, and finds copies with nothing to do
 *
 * The checks come in PyTorch's order: the same elements; sizes; no elements; meta tensors;
 * overlap. All that can be refused is refused before the destination is materialized.
 */
#include "tensor/copy.h"
#include "core/memory/state.h"
#include "core/base/error.h"
#include "core/storage/storage.h"
#include "tensor/say.h"

#define KNOWN_FLAGS                                                            \
	(COW_COPY_LAZY | COW_COPY_NON_BLOCKING | COW_COPY_IGNORE_OVERLAP)

/* Under the engine's lock, which fork takes. */
static cow_warning_fn *warning;
static void *warning_user;
static bool warned;

COW_EXPORT void
cow_warning_set(cow_warning_fn *fn, void *user)
{
	cow__engine_lock();
	warning = fn;
	warning_user = user;
	cow__engine_unlock();
}

/* Calls the program without the lock, as the program may call the library. */
static void
warn_of_dropped_parts(void)
{
	cow_warning_fn *fn = NULL;
	void *user = NULL;

	if (__atomic_load_n(&warned, __ATOMIC_RELAXED))
		return;
	cow__engine_lock();
	if (!warned && warning) {
		fn = warning;
		user = warning_user;
		__atomic_store_n(&warned, true, __ATOMIC_RELAXED);
	}
	cow__engine_unlock();
	if (fn)
		fn(user, "a copy of complex elements to real ones drops their "
		         "imaginary parts");
}

static bool
is_device(const struct cow_tensor *t, enum cow_device_type type)
{
	return cow_storage_device(t->storage).type == (int)type;
}

/* Are they the same elements, with the same type and bits? Strides of dimensions of size 1 may
 * differ. */
static bool
nothing_to_do(const struct cow_tensor *to, const struct cow_tensor *from)
{
	if (to == from)
		return true;
	if (to->storage != from->storage || to->offset != from->offset ||
	    to->dtype != from->dtype || to->dims != from->dims ||
	    to->conj != from->conj || to->neg != from->neg)
		return false;
	for (int i = 0; i < to->dims; i++)
		if (to->sizes[i] != from->sizes[i] ||
		    (to->sizes[i] > 1 && to->strides[i] != from->strides[i]))
			return false;
	return true;
}

/* A view of `from` with the sizes of `to`. Extra dimensions of size 1 in front are dropped. */
int
cow__tensor_broadcast(const struct cow_tensor *to, struct cow_tensor *from,
                      struct cow_tensor **ret)
{
	struct cow_tensor *t = cow_tensor_ref(from), *next;
	int r = 0;

	while (r == 0 && t->dims > to->dims && t->sizes[0] == 1) {
		r = cow_tensor_squeeze(t, 0, &next);
		if (r == 0) {
			(void)cow_tensor_unref(t);
			t = next;
		}
	}
	if (r == 0)
		r = cow_tensor_expand(t, to->dims, to->sizes, &next);
	(void)cow_tensor_unref(t);
	if (r == -EINVAL)
		return cow__say(r, "cow_tensor_copy: #t can't be broadcast to #t",
		                from, to);
	if (r < 0)
		return r;
	*ret = next;
	return 0;
}

static int
overlap_check(const struct cow_tensor *to, const struct cow_tensor *from,
              enum cow__overlap overlap)
{
	if (cow__overlaps_itself(to))
		return cow__say(-EINVAL, "cow_tensor_copy: several elements of #t "
		                         "have one place in memory; clone it "
		                         "first", to);
	if (overlap == COW__OVERLAP_SOME)
		return cow__say(-EINVAL, "cow_tensor_copy: #t and #t overlap in "
		                         "memory; clone one first", to, from);
	return 0;
}

static int
copy_all(struct cow_tensor *to, struct cow_tensor *from, bool whole, uint32_t flags,
         struct cow_work *work)
{
	return work ? cow__copy_begin(to, from, whole, flags, work)
	            : cow__copy_elements(to, from, whole, flags);
}

/* A device may refuse or fail after the destination got memory of its own, which has any
 * bytes. Then the destination gets its old bytes back. */
static int
copy_or_keep(struct cow_tensor *to, struct cow_tensor *from, bool whole,
             uint32_t flags, struct cow_work *work)
{
	struct cow__allocation *old = NULL;
	size_t offset, bytes;
	int r = 0;

	if (whole &&
	    !(is_device(to, COW_DEVICE_CPU) && is_device(from, COW_DEVICE_CPU)) &&
	    cow_tensor_is_dense(to)) {
		cow__tensor_range(to, &offset, &bytes);
		r = cow__materialize_keeping(to->storage, offset, bytes, &old);
		if (r < 0)
			return cow__error_passed(r, "cow_tensor_copy");
	}
	r = copy_all(to, from, whole, flags, work);
	if (old && r < 0)
		cow__materialize_undo(to->storage, old);
	else if (old)
		cow__allocation_unref(old);
	return r;
}

static int
copy_expanded(struct cow_tensor *to, struct cow_tensor *from, uint32_t flags,
              struct cow_work *work)
{
	enum cow__overlap overlap;
	int r;

	if (is_device(to, COW_DEVICE_META))
		return 0;
	if (is_device(from, COW_DEVICE_META))
		return cow__say(-ENODATA, "cow_tensor_copy: #t is a meta tensor, "
		                          "which has no bytes to copy from",
		                from);
	r = cow__tensor_there(to);
	if (r == 0)
		r = cow__tensor_readable(from);
	if (r < 0)
		return r;
	overlap = cow__overlap_of(to, from);
	if (!(flags & COW_COPY_IGNORE_OVERLAP)) {
		r = overlap_check(to, from, overlap);
		if (r < 0)
			return r;
	}
	if (flags & COW_COPY_LAZY) {
		r = cow__tensor_share(to, from);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	if (cow_dtype_is_complex((enum cow_dtype)from->dtype) &&
	    !cow_dtype_is_complex((enum cow_dtype)to->dtype) &&
	    to->dtype != COW_BOOL)
		warn_of_dropped_parts();
	return copy_or_keep(to, from, overlap == COW__OVERLAP_NONE, flags, work);
}

int
cow__tensor_copy(struct cow_tensor *to, struct cow_tensor *from, uint32_t flags,
                 struct cow_work *work)
{
	struct cow_tensor *source = NULL;
	bool same;
	int r;

	if (!to || !from)
		return cow__error(-EINVAL, "cow_tensor_copy: NULL");
	if (flags & ~(uint32_t)KNOWN_FLAGS)
		return cow__error(-EINVAL, "cow_tensor_copy: unknown flags");
	if (cow__unlikely(to->quantizer || from->quantizer))
		return cow__copy_quantized(to, from, flags, work);
	if (nothing_to_do(to, from))
		return 0;
	same = to->dims == from->dims &&
	       memcmp(to->sizes, from->sizes,
	              to->dims * sizeof(int64_t)) == 0;
	if (same)
		return to->numel ? copy_expanded(to, from, flags, work) : 0;
	r = cow__tensor_broadcast(to, from, &source);
	if (r < 0)
		return r;
	/* Without its dimensions of 1 in front `from` may be `to` itself. */
	if (to->numel > 0 && !(from->numel == to->numel && nothing_to_do(to, source)))
		r = copy_expanded(to, source, flags, work);
	(void)cow_tensor_unref(source);
	return r;
}

COW_EXPORT int
cow_tensor_copy(struct cow_tensor *to, struct cow_tensor *from, uint32_t flags)
{
	return cow__tensor_copy(to, from, flags, NULL);
}
