/* SPDX-License-Identifier: MIT */
/*
 * Copies that are left unfinished, and their handles (struct cow_work)
 *
 * Staging (stage.c) converts on the host, which needs no memory for a second type on a
 * device. Here the device converts: the host would have to wait for the device first.
 *
 *   to the host     the device converts and packs, then the bytes are moved
 *   to a device     the bytes are moved as they lie, then the device converts and spreads
 *
 * A work holds what its copy needs until it has ended: both tensors, a temporary, and a
 * mark of the device behind all of it. Work that is freed before it has ended goes to a
 * list. Each call that begins or frees work looks through that list.
 */
#include "core/base/error.h"
#include "core/base/pool.h"
#include "tensor/copy.h"
#include "tensor/device.h"

static struct cow__pool works = { .object_bytes = sizeof(struct cow_work) };

/* Freed work that has not ended, as far as is known. The list is taken and put back as a
 * whole, so that no lock is held while a device is asked. */
static struct cow_work *orphans;

static bool
on_host(const struct cow_tensor *t)
{
	return cow_storage_device(t->storage).type == COW_DEVICE_CPU;
}

/* ---- Begin ---------------------------------------------------------------------- */

/* The destination's conj and neg apply to what it gets, so the temporary has them, too. */
static int
to_the_host(struct cow_tensor *to, struct cow_tensor *from, uint32_t flags,
            struct cow_tensor **ret)
{
	int r;

	if (!cow_tensor_is_dense(to))
		return -ENOTSUP;
	r = cow__copy_temporary(to, to, from, ret);
	if (r < 0)
		return r;
	r = cow__copy_at_once(*ret, from, true, flags);
	return r < 0 ? r : cow__copy_at_once(to, *ret, true, flags);
}

static int
to_a_device(struct cow_tensor *to, struct cow_tensor *from, bool whole,
            uint32_t flags, struct cow_tensor **ret)
{
	int r;

	if (!cow_tensor_is_dense(from))
		return -ENOTSUP;
	r = cow__copy_temporary(from, from, to, ret);
	if (r < 0)
		return r;
	r = cow__copy_at_once(*ret, from, true, flags);
	return r < 0 ? r : cow__copy_at_once(to, *ret, whole, flags);
}

static int
unfinished(struct cow_tensor *to, struct cow_tensor *from, bool whole,
           uint32_t flags, struct cow_work *work)
{
	int r = -ENOTSUP;

	/* The destination's bits apply after the conversion: stage.c does that in two steps. */
	if ((to->conj || to->neg) && to->dtype != from->dtype)
		return r;
	r = cow__copy_at_once(to, from, whole, flags);
	if (r != -ENOTSUP)
		return r;
	if (on_host(to) && !on_host(from))
		r = to_the_host(to, from, flags, &work->between);
	else if (on_host(from) && !on_host(to))
		r = to_a_device(to, from, whole, flags, &work->between);
	return r;
}

int
cow__copy_begin(struct cow_tensor *to, struct cow_tensor *from, bool whole,
                uint32_t flags, struct cow_work *work)
{
	const struct cow_device_ops *ops;
	int r, s;

	work->device = cow_storage_device(on_host(to) ? from->storage
	                                              : to->storage);
	ops = cow__device_marks(work->device);
	flags &= ~(uint32_t)COW_COPY_NON_BLOCKING;
	if (!ops)
		return cow__copy_elements(to, from, whole, flags);
	r = unfinished(to, from, whole,
	               flags | COW_COPY_NON_BLOCKING | COW_COPY_MARKED, work);
	if (r == -ENOTSUP)
		r = cow__copy_elements(to, from, whole, flags | COW_COPY_MARKED);
	/* Also after a failure, because something may be queued. Its sentence stays. */
	if (r == 0)
		cow__error_begin();
	s = ops->mark(ops->user, work->device, &work->mark);
	return r < 0 ? r : cow__device_said(ops, s);
}

/* ---- Handles --------------------------------------------------------------------- */

static void
let_go(struct cow_work *w)
{
	const struct cow_device_ops *ops = cow__device_marks(w->device);

	if (w->mark && ops)
		ops->mark_free(ops->user, w->device, w->mark);
	w->mark = NULL;
	(void)cow_tensor_unref(w->to);
	(void)cow_tensor_unref(w->from);
	(void)cow_tensor_unref(w->between);
	w->to = w->from = w->between = NULL;
	w->done = true;
}

/* 1: it has ended, and holds nothing any more; 0: not yet; -errno, without a sentence of
 * ours. */
static int
poll_work(struct cow_work *w, bool waits)
{
	const struct cow_device_ops *ops = cow__device_marks(w->device);
	int r;

	if (w->done)
		return w->result < 0 ? w->result : 1;
	if (!ops)
		r = -ENODEV;
	else if (waits)
		r = ops->await(ops->user, w->device, w->mark);
	else
		r = ops->passed(ops->user, w->device, w->mark);
	if (r == 0 && !waits)
		return 0;
	/* After an error the device does nothing more. A forked child has no work. */
	w->result = r < 0 ? r : 0;
	let_go(w);
	return r < 0 ? r : 1;
}

/* Asks for the owner of the handle, with a sentence on failure. */
static int
poll_for_owner(struct cow_work *w, bool waits)
{
	const struct cow_device_ops *ops = cow__device_marks(w->device);
	int r;

	if (w->done && w->result < 0)
		return cow__error_from(w->result, "the copy failed before");
	cow__error_begin();
	r = poll_work(w, waits);
	if (r < 0 && !ops)
		return cow__error(r, "the device of this copy is no longer registered");
	return r < 0 ? cow__device_said(ops, r) : r;
}

static void
give_up(struct cow_work *w)
{
	/* Pairs with the exchange in look_after(). */
	w->next = __atomic_load_n(&orphans, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&orphans, &w->next, w, true,
	                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

static void
part_with(struct cow_work *w)
{
	if (poll_work(w, false) == 0)
		give_up(w);
	else
		cow__pool_give(&works, w);
}

static void
look_after(void)
{
	struct cow_work *w, *next;

	if (cow__likely(!__atomic_load_n(&orphans, __ATOMIC_RELAXED)))
		return;
	for (w = __atomic_exchange_n(&orphans, NULL, __ATOMIC_ACQUIRE); w;
	     w = next) {
		next = w->next;
		part_with(w);
	}
}

COW_EXPORT int
cow_tensor_copy_begin(struct cow_tensor *to, struct cow_tensor *from,
                      uint32_t flags, struct cow_work **ret)
{
	struct cow_work *w;
	int r;

	if (!ret)
		return cow__error(-EINVAL, "cow_tensor_copy_begin: ret is NULL");
	look_after();
	w = cow__pool_take(&works);
	if (!w)
		return cow__error(-ENOMEM, "cow_tensor_copy_begin: no memory");
	*w = (struct cow_work){ .done = true };
	r = cow__tensor_copy(to, from, flags, w);
	if (w->mark) {
		w->done = false;
		w->to = cow_tensor_ref(to);
		w->from = cow_tensor_ref(from);
	} else {
		let_go(w);
	}
	if (r < 0)
		part_with(w);
	else
		*ret = w;
	return r;
}

COW_EXPORT int
cow_work_poll(struct cow_work *work)
{
	if (!work)
		return cow__error(-EINVAL, "cow_work_poll: NULL");
	return poll_for_owner(work, false);
}

COW_EXPORT int
cow_work_wait(struct cow_work *work)
{
	int r;

	if (!work)
		return cow__error(-EINVAL, "cow_work_wait: NULL");
	r = poll_for_owner(work, true);
	return r < 0 ? r : 0;
}

COW_EXPORT struct cow_work *
cow_work_free(struct cow_work *work)
{
	if (!work)
		return NULL;
	part_with(work);
	look_after();
	return NULL;
}
