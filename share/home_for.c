/* SPDX-License-Identifier: MIT */
/*
 * From which home a storage is sent, in which mode
 *
 * cow__home_for() tries these in turn and takes the first that serves:
 *
 *   1. the home that the storage has, or that it is an unwritten view of
 *   2. an alias in place, of a transparent storage
 *   3. an alias of memory that a device's driver pinned
 *   4. the engine's own pages, given away as they lie
 *   5. a new home with a copy; a tracked storage lives in it from then on
 */
#include "core/base/error.h"
#include "share/channel.h"
#include "share/parcel.h"

/* Can this home be sent in this mode? Not as a clone if the program has the address for
 * good (`in_place`): it would go on writing the bytes that were sent. */
static bool
serves(struct cow__home *h, bool in_place, enum cow_share_mode mode,
       const struct cow_group *group)
{
	if (!h)
		return false;
	if (mode == COW_SHARE_ALIAS)
		return h->kind == COW__HOME_ALIAS &&
		       (!h->pack || h->pack->group == group);
	if (h->kind == COW__HOME_SEALED)
		return cow__home_exact(h); /* else there is more in it */
	return mode == COW_SHARE_CLONE && h->kind == COW__HOME_PACKED &&
	       !h->diverged && h->pack->group == group && !in_place;
}

/* Pointers for writing end, as at any clone. */
static void
end_writing(struct cow__home *h, struct cow_storage *s)
{
	if (h->kind == COW__HOME_ALIAS)
		return;
	h->writable = false;
	__atomic_store_n(&s->data->owned, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&s->data->cloned, 1, __ATOMIC_RELAXED);
}

/* A reference to the home that there is and that serves, or NULL. `ret_own`: the home of
 * the storage's own bytes, which may not serve, without a reference. */
static struct cow__home *
home_there(struct cow_storage *s, enum cow_share_mode mode, struct cow_group *group,
           struct cow__home **ret_own)
{
	struct cow__home *h, *shown, *found = NULL;

	shown = mode == COW_SHARE_ALIAS ? NULL : cow__home_shown(s);
	cow__share_enter();
	h = cow__home_of(s);
	if (serves(h, cow__transparent(s), mode, group) ||
	    serves(shown, false, mode, group)) {
		if (shown)
			h = shown;
		else
			end_writing(h, s);
		h->refs++;
		found = h;
	}
	cow__share_leave();
	*ret_own = h;
	return found;
}

/* The storage lives there from now on, so the next time costs nothing. A storage that is
 * written at an address stays where it is, unless it becomes an alias. Only an alias can
 * fail; then the caller's reference is gone. */
static int
move_to_home(struct cow__home *h, struct cow_storage *s, enum cow_share_mode mode)
{
	int r;

	if (cow__transparent(s) || s->data->kind == COW__AT_FOREIGN ||
	    (mode != COW_SHARE_ALIAS && cow__unwatched(s)))
		return 0;
	h->refs++;
	r = cow__home_move_in(h, s);
	if (r == 0)
		return 0;
	cow__share_enter();
	h->refs--;
	cow__share_leave();
	if (mode != COW_SHARE_ALIAS)
		return 0;
	cow__share_enter();
	cow__home_unref(h);
	cow__share_leave();
	return cow__error_from(r, "cow_channel_send");
}

/* The aliases that need no new home, and those that can't be. 1: it is neither. */
static int
alias_there(struct cow_storage *s, const struct cow__home *own, struct cow__home **ret)
{
	int r;

	/* In a new home it would no longer be an alias of the others. */
	if (own && own->kind == COW__HOME_ALIAS)
		return cow__error(-EXDEV, "an alias in a group's memory can't be "
		                          "sent outside of the group");
	if (cow__transparent(s)) {
		r = cow__home_common(s, ret);
		if (r == 0)
			return 0;
		if (r != -ENOTSUP)
			return cow__error_from(r, "an alias in place");
		return cow__error(-EBUSY, "a transparent storage can't move to "
		                          "become an alias: see "
		                          "cow_storage_share_in_place()");
	}
	/* Its pages become the alias as they lie. Where that can't be they are copied. */
	if ((s->flags & COW_STORAGE_SHAREABLE) && s->data->kind == COW__AT_TILE &&
	    __atomic_load_n(&s->data->refs, __ATOMIC_ACQUIRE) == 1 &&
	    cow__home_share_in_place(s) == 0 && cow__home_common(s, ret) == 0) {
		r = move_to_home(*ret, s, COW_SHARE_ALIAS);
		return r < 0 ? r : 0;
	}
	if (!own && (s->data->kind == COW__AT_EXTERNAL ||
	             s->data->kind == COW__AT_FOREIGN)) {
		r = cow__parcels() ? cow__parcels()->alias_pinned(s, ret)
		                   : -EOPNOTSUPP;
		return r == -EOPNOTSUPP
		               ? cow__error(r, "memory of another allocator can't "
		                               "become an alias")
		               : r;
	}
	return 1;
}

int
cow__home_for(struct cow_storage *s, enum cow_share_mode mode,
              struct cow_group *group, struct cow__home **ret)
{
	static const enum cow__home_kind kinds[] = {
		[COW_SHARE_ALIAS] = COW__HOME_ALIAS,
		[COW_SHARE_CLONE] = COW__HOME_PACKED,
		[COW_SHARE_SEALED] = COW__HOME_SEALED,
	};
	enum cow__home_kind kind = kinds[mode];
	struct cow__home *own, *h = home_there(s, mode, group, &own);
	int r;

	if (h) {
		*ret = h;
		return 0;
	}
	if (mode == COW_SHARE_ALIAS) {
		r = alias_there(s, own, ret);
		if (r <= 0)
			return r;
	}
	if (!group && kind == COW__HOME_PACKED)
		kind = COW__HOME_SEALED;
	if (mode != COW_SHARE_ALIAS && cow__home_give(s, ret) == 0)
		return 0;
	r = cow__allocation_readable(s->data, 0, s->bytes);
	if (r < 0)
		return cow__error_from(r, "sending");
	r = cow__home_new(group, kind, s->data, s->bytes, &h);
	if (r < 0)
		return cow__error_from(r, "no memory to share from");
	r = move_to_home(h, s, mode);
	if (r == 0)
		*ret = h;
	return r;
}
