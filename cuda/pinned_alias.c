/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory that other processes write, too
 *
 *      storage --> home (a memfd of its own, share/home.h) <-- their mappings
 *                    |  mapped here, that mapping pinned
 *                  pinned entry (cuda/pinned.c), marks of streams
 *
 * Pinned memory is an extent of the file that has all memory of the engine, and no other
 * process may have that file. So a storage that is sent as an alias for the first time
 * moves to a home, whose mapping is pinned before. From then on devices, this process and
 * others use the same pages, and to send it again costs nothing. Copies that are under way
 * with the old pages would be lost, so they are waited for first.
 *
 * The driver needs the mapping longer than the storage does: while copies are queued, and
 * until it is unpinned. Unpinning needs a device entered and no lock held. So the home's
 * last reference passes to the pinned entry, which drops it when its streams have passed.
 * The memory is never cached for other storages, because a process that has the descriptor
 * could go on writing it.
 */
#include "core/base/error.h"
#include "core/storage/storage.h"
#include "cuda/pinned.h"
#include "cuda/stream.h"
#include "share/home.h"

/* Called when the last reference goes, with the share lock held (share/home.h). */
static bool
ends(struct cow__home *h)
{
	const struct cow__cu *cu;

	if (cow__cu_start(&cu) < 0)
		return false; /* a forked child, in which nothing is pinned */
	cow__cuda_pinned_home_unused(h);
	return true;
}

/* Pins the home's mapping. The home then has references for the storage and for the caller. */
static int
pin(struct cow__cuda *d, struct cow__home *h)
{
	int r = cow__cuda_pinned_home(d, h);

	if (r < 0)
		return r;
	cow__mutex_lock(&cow__share_lock);
	h->ends = ends;
	h->refs++;
	cow__mutex_unlock(&cow__share_lock);
	return 0;
}

static void
drop_home(struct cow__home *h)
{
	cow__mutex_lock(&cow__share_lock);
	cow__home_unref(h);
	cow__mutex_unlock(&cow__share_lock);
}

/* Entered. */
static int
become_alias(struct cow__cuda *d, struct cow_storage *s, struct cow__home **ret)
{
	struct cow__home *h;
	int r = cow__cuda_pinned_await(d, s->data->data);

	if (r < 0)
		return r;
	r = cow__home_new(NULL, COW__HOME_ALIAS, s->data, s->bytes, &h);
	if (r < 0)
		return cow__error_from(r, "no memory to share from");
	r = pin(d, h);
	if (r == 0) {
		r = cow__home_move_in(h, s);
		if (r < 0) {
			r = cow__error_from(r, "an alias of pinned memory");
			drop_home(h);
		}
	}
	if (r < 0)
		drop_home(h);
	else
		*ret = h;
	return r;
}

int
cow__cuda_pinned_alias(struct cow_storage *s, struct cow__home **ret)
{
	struct cow__cuda *d;
	int r;

	if (!cow__cuda_pinned_owns(s))
		return -EOPNOTSUPP;
	r = cow__cuda_get(0, &d);
	if (r == 0)
		r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	r = become_alias(d, s, ret);
	cow__cuda_leave(d);
	return r;
}
