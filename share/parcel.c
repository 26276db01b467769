/* SPDX-License-Identifier: MIT */
/*
 * Storages of devices in messages. See the header.
 */
#include "share/parcel.h"
#include "core/base/error.h"
#include "share/broker.h"
#include "share/channel.h"

COW_EXPORT const struct cow__parcel_ops *cow__parcel_ops;

/* An alias that comes twice is one storage only within one group, or one channel. */
static struct cow__id
scope_of(const struct cow_channel *c)
{
	return c->group ? c->group->id
	                : (struct cow__id){ (uintptr_t)c, c->socket_is.ino };
}

int
cow__parcel_add(struct cow_channel *c, const struct cow_parcel *p,
                struct cow__wire_item *i)
{
	struct cow__id scope = scope_of(c);
	struct cow__making *m = &c->making;
	struct cow__outgoing *o = &c->out;
	struct cow__wire_device w;
	struct cow_broker *b;
	int fd, r;

	if (i->bytes &&
	    cow__strategy_of(p->strategy, &b) == COW_STRATEGY_BROKER) {
		(void)cow_broker_unref(b);
		return cow__error(-EOPNOTSUPP, "the broker keeps only the CPU's memory: "
		                               "send a device's by descriptor");
	}
	r = cow__parcels()->send(p->storage, (enum cow_share_mode)p->mode, &scope,
	                         c->group != NULL, &fd, &w);
	if (r < 0)
		return r;
	memcpy(m->bytes + m->nbytes, &w, sizeof(w));
	m->nbytes += sizeof(w);
	i->kind = COW__WIRE_DEVICE;
	m->nitems++;
	if (i->bytes == 0)
		return 0;
	i->index = (uint16_t)m->nown;
	o->parcels[o->nparcels] = cow__descriptor_adopt(fd);
	m->own[m->nown++] = o->parcels[o->nparcels++];
	return 0;
}

int
cow__parcel_open(struct cow_channel *c, const struct cow__wire_item *i, int fd,
                 const unsigned char *bytes, struct cow_storage **ret)
{
	const struct cow__parcel_ops *ops = cow__parcels();
	struct cow__id scope = scope_of(c);
	struct cow__wire_device w;

	if (i->mode == COW_SHARE_ALIAS && i->bytes && !c->group &&
	    !(c->flags & COW_CHANNEL_TAKE_ALIASES))
		return -EACCES;
	if (!ops)
		return -ENODEV;
	memcpy(&w, bytes, sizeof(w));
	return ops->receive(&w, i->bytes, (enum cow_share_mode)i->mode, &scope,
	                    c->group || (c->flags & COW_CHANNEL_TAKE_ALIASES),
	                    fd, ret);
}
