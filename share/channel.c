/* SPDX-License-Identifier: MIT */
/*
 * Channels: made and freed. See the header.
 */
#include "share/channel.h"
#include "core/memory/state.h"
#include "core/base/error.h"
#include "core/cow/seal.h"
#include "core/memory/own_segment.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "share/group.h"

#define KNOWN                                                                  \
	(COW_CHANNEL_JOIN | COW_CHANNEL_TAKE_ALIASES | COW_CHANNEL_SAME_USER |  \
	 COW_CHANNEL_LABELS)

static struct cow_channel *channels; /* cow__share_lock */

static size_t
mapped(void)
{
	return cow__round_up(sizeof(struct cow_channel), cow__page);
}

static int
same_user(int socket)
{
	uint32_t uid;
	int32_t pid;
	int r = cow__socket_peer(socket, &uid, &pid);

	if (r < 0)
		return r;
	return uid == cow__process_user() ? 0 : -EPERM;
}

COW_EXPORT int
cow_channel_new(int socket, struct cow_group *group, uint32_t flags,
                struct cow_channel **ret)
{
	struct cow_channel *c;
	void *at;
	int r, kind;

	if (!ret || (flags & ~(uint32_t)KNOWN))
		return cow__error(-EINVAL, ret ? "cow_channel_new: unknown flags"
		                               : "cow_channel_new: ret is NULL");
	kind = cow__socket_kind(socket);
	if (kind < 0)
		return cow__error(kind, "cow_channel_new: not a connected Unix "
		                        "socket (stream or seqpacket)");
	r = flags & COW_CHANNEL_SAME_USER ? same_user(socket) : 0;
	if (r < 0)
		return cow__error(r, "cow_channel_new: the peer is another "
		                     "user's process");
	r = cow__engine_enter(); /* page size, fork handlers */
	if (r < 0)
		return cow__error_from(r, "cow_channel_new");
	cow__engine_unlock();
	r = cow__map_meta(mapped(), &at);
	if (r < 0)
		return cow__error_from(r, "cow_channel_new");
	c = at; /* zeros */
	c->socket = socket;
	c->socket_is = cow__descriptor_of(socket);
	c->flags = flags;
	c->stream = kind;
	c->group = cow_group_ref(group);
	c->out.slot = COW__SLOT_NONE;
	cow__own_segments_expect();
	cow__share_enter();
	c->next = channels;
	channels = c;
	cow__share_leave();
	*ret = c;
	return 0;
}

COW_EXPORT struct cow_channel *
cow_channel_free(struct cow_channel *c)
{
	if (!c)
		return NULL;
	/* In a child these are its copies of the storages that had come or waited. */
	if (!c->torn) {
		cow__outgoing_end(c);
		cow__incoming_end(c);
	}
	cow__share_enter();
	for (struct cow_channel **p = &channels; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	if (c->group)
		cow__group_unref(c->group);
	cow__share_leave();
	(void)cow__map_release((uintptr_t)c, mapped());
	return NULL;
}

COW_EXPORT struct cow_group *
cow_channel_group(struct cow_channel *c)
{
	return c ? cow_group_ref(c->group) : NULL;
}

COW_EXPORT int
cow_channel_pending(struct cow_channel *c, size_t *ret_parcels)
{
	const struct cow__incoming *in;
	int r = 0;

	if (!c)
		return cow__error(-EINVAL, "cow_channel_pending: NULL");
	cow__mutex_lock(&c->lock);
	in = &c->in;
	if (c->parents)
		r = cow__error(-EPERM, "the channel belongs to the parent process: make "
		                       "another one after fork");
	else if (in->ready || (in->bytes && in->have == in->bytes))
		r = COW_PENDING_RECEIVE;
	if (r >= 0 && c->out.bytes)
		r |= COW_PENDING_SEND;
	if (r >= 0 && ret_parcels)
		*ret_parcels = in->ready ? in->nparcels - in->given : 0;
	cow__mutex_unlock(&c->lock);
	return r;
}

COW_EXPORT struct cow_parcel
cow_parcel_of(struct cow_storage *storage, enum cow_share_mode mode)
{
	return (struct cow_parcel){
		.storage = storage,
		.length = cow_storage_bytes(storage),
		.mode = (uint32_t)mode,
	};
}

/* The parent sends what waits in a channel, and receives what has come. In the child the
 * message's slot must not stay open. */
void
cow__channels_child(void)
{
	for (struct cow_channel *c = channels; c; c = c->next) {
		c->parents = true;
		/* Of a half received message the slot came, too, and would stay open
		 * here. If another thread used the channel at the fork, which
		 * descriptors are there is not known, and they stay. */
		c->torn |= c->lock.state != 0;
		if (!c->torn)
			cow__incoming_close_fds(&c->in);
		c->lock.state = 0;
		cow__descriptor_close(&c->out.slot.file);
	}
}
