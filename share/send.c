/* SPDX-License-Identifier: MIT */
/*
 * Sending: makes messages of parcels, and writes them to the socket. See share/channel.h.
 */
#include "core/base/error.h"
#include "share/broker.h"
#include "share/channel.h"
#include "share/hold.h"
#include "share/parcel.h"

/* ---- What is to be sent ------------------------------------------------------------- */

static int
check(const struct cow_parcel *p)
{
	const struct cow_storage *s = p->storage;

	if (!s || p->mode > COW_SHARE_SEALED || p->strategy > COW_STRATEGY_BROKER)
		return cow__error(-EINVAL, s ? "cow_parcel: no such mode "
		                               "or strategy"
		                             : "cow_parcel: no storage");
	if (p->offset > s->bytes || p->length > s->bytes - p->offset)
		return cow__error_number(-EINVAL,
		                         "cow_parcel: the view lies outside of "
		                         "the storage of # bytes", s->bytes);
	if (s->elements)
		return cow__error(-EOPNOTSUPP, "a storage with element hooks "
		                               "can't be sent");
	if (s->device.type == COW_DEVICE_CUDA && cow__parcels())
		return 0;
	if (s->device.type != COW_DEVICE_CPU)
		return cow__error(-EOPNOTSUPP,
		                  "the storage is not in the CPU's memory");
	return 0;
}

/* ---- Messages -------------------------------------------------------------------------- */

void
cow__outgoing_end(struct cow_channel *c)
{
	struct cow__outgoing *o = &c->out;

	cow__share_enter();
	while (o->nhomes > 0)
		cow__home_unref(o->homes[--o->nhomes]);
	while (o->nparcels > 0)
		cow__descriptor_close(&o->parcels[--o->nparcels]);
	/* A message that was sent has the slot's descriptor in the queue. */
	cow__slot_close(&o->slot);
	cow__share_leave();
	o->bytes = o->sent = 0;
	o->nfds = o->npacks = 0;
}

/* The last message has the note, and each may turn out to be the last. */
static bool
is_full(const struct cow__making *m, size_t note_bytes)
{
	if (m->nitems == 0)
		return false;
	return m->nitems == COW__WIRE_ITEMS || m->nown == COW__OWN_MOST ||
	       sizeof(struct cow__wire_head) + m->nitems * sizeof(m->items[0]) +
	                       m->nbytes + sizeof(m->items[0]) +
	                       COW__WIRE_INLINE + note_bytes >
	               m->limit ||
	       m->nbytes + COW__WIRE_INLINE > sizeof(m->bytes);
}

static int
pack_index(struct cow__outgoing *o, struct cow__pack *p)
{
	for (unsigned i = 0; i < o->npacks; i++)
		if (o->packs[i] == p)
			return (int)i;
	if (o->npacks == COW__WIRE_FDS - COW__OWN_MOST - 2)
		return -E2BIG;
	o->packs[o->npacks] = p;
	return (int)o->npacks++;
}

/* Lets the message's slot hold an extent. Locked. */
static int
add_packed(struct cow_channel *c, struct cow__home *h, struct cow__wire_item *i)
{
	struct cow__outgoing *o = &c->out;
	int n, r;

	if (o->slot.number == COW__NO_SLOT) {
		r = cow__slot_take(c->group,
		                   h->kind == COW__HOME_ALIAS ? COW__SLOTS_ALIASES
		                                              : COW__SLOTS_CLONES,
		                   &o->slot);
		if (r < 0)
			return r;
	}
	n = pack_index(o, h->pack);
	if (n < 0)
		return n;
	cow__hold_set(h->pack, &o->slot, h->at.page);
	i->kind = COW__WIRE_PACKED;
	i->index = (uint16_t)n;
	i->page = h->at.page;
	i->pages = h->at.pages;
	i->generation = h->at.generation;
	return 0;
}

/* Puts the storage to the broker; the message has the token. */
static int
add_token(struct cow__making *m, struct cow_broker *b, const struct cow_parcel *p,
          struct cow__wire_item *i)
{
	struct cow_broker_item item = {
		.mode = p->mode,
		.permissions = 0666, /* any user that has the token */
		.flags = COW_BROKER_ONCE,
	};
	int r;

	if (!b)
		return cow__error(-EINVAL, "cow_parcel: no broker was set with "
		                           "cow_strategy_set()");
	r = cow_broker_put(b, p->storage, &item);
	(void)cow_broker_unref(b);
	if (r < 0)
		return r;
	memcpy(m->bytes + m->nbytes, &item.token, COW__WIRE_TOKEN_BYTES);
	m->nbytes += COW__WIRE_TOKEN_BYTES;
	i->kind = COW__WIRE_TOKEN;
	m->nitems++;
	return 0;
}

/* An item with the bytes themselves. */
static int
add_bytes(struct cow__making *m, const struct cow_storage *s,
          struct cow__wire_item *i)
{
	int r = cow__allocation_readable(s->data, 0, s->bytes);

	if (r < 0)
		return cow__error_from(r, "cow_channel_send");
	memset(m->bytes + m->nbytes, 0, cow__round_up(s->bytes, 8));
	memcpy(m->bytes + m->nbytes, s->data->data, s->bytes);
	m->nbytes += cow__round_up(s->bytes, 8);
	i->kind = COW__WIRE_BYTES_HERE;
	m->nitems++;
	return 0;
}

/* An item of a home: an extent of a pack, or a memfd of its own. Takes the reference over,
 * also on failure. */
static int
add_home(struct cow_channel *c, struct cow__making *m, struct cow__home *h,
         struct cow__wire_item *i)
{
	struct cow__outgoing *o = &c->out;
	int r = 0;

	cow__share_enter();
	if (h->pack)
		r = add_packed(c, h, i);
	if (r < 0) {
		cow__home_unref(h);
		cow__share_leave();
		return r == -E2BIG || r == -EAGAIN
		               ? r
		               : cow__error_from(r, "taking a slot of the group "
		                                    "for a message");
	}
	if (!h->pack) {
		i->kind = COW__WIRE_OWN;
		i->index = (uint16_t)m->nown;
		i->file_offset = h->offset;
		m->own[m->nown++] = h->file;
	}
	o->homes[o->nhomes++] = h;
	cow__share_leave();
	m->nitems++;
	return 0;
}

/* Readers that are slow to take their messages have used the slots of the group up. A clone
 * can go without one, as a copy in a memfd of its own. An alias can't. */
static int
add_without_slot(struct cow_channel *c, struct cow__making *m, const struct cow_parcel *p,
                 struct cow__wire_item *i)
{
	struct cow__home *h;
	int r;

	if (p->mode != COW_SHARE_CLONE)
		return cow__error_number(-EUSERS, "all # slots of the group are taken by "
		                                  "members and messages", COW__SLOTS);
	r = cow__allocation_readable(p->storage->data, 0, p->storage->bytes);
	if (r == 0)
		r = cow__home_new(NULL, COW__HOME_SEALED, p->storage->data,
		                  p->storage->bytes, &h);
	return r < 0 ? cow__error_from(r, "no memory to share from")
	             : add_home(c, m, h, i);
}

/* One more item. -E2BIG: this message has no room for another pack; else as
 * cow_channel_send(). */
static int
add_item(struct cow_channel *c, struct cow__making *m, const struct cow_parcel *p)
{
	struct cow_storage *s = p->storage;
	struct cow__wire_item *i = &m->items[m->nitems];
	struct cow_broker *b;
	struct cow__home *h;
	int r;

	*i = (struct cow__wire_item){
		.mode = (uint8_t)p->mode,
		.kind = COW__WIRE_NOTHING,
		.bytes = s->bytes,
		.offset = p->offset,
		.length = p->length,
	};
	if (s->device.type != COW_DEVICE_CPU)
		return cow__parcel_add(c, p, i);
	if (s->bytes == 0) {
		m->nitems++;
		return 0;
	}
	if (p->mode == COW_SHARE_CLONE && s->bytes <= COW__WIRE_INLINE)
		return add_bytes(m, s, i);
	if (cow__strategy_of(p->strategy, &b) == COW_STRATEGY_BROKER)
		return add_token(m, b, p, i);
	r = cow__home_for(s, (enum cow_share_mode)p->mode, c->group, &h);
	if (r == 0)
		r = add_home(c, m, h, i);
	return r == -EAGAIN ? add_without_slot(c, m, p, i) : r;
}

/* Lays the message out. */
static void
encode(struct cow_channel *c, const struct cow__making *m, const void *note,
       size_t note_bytes)
{
	struct cow__outgoing *o = &c->out;
	char *at = (char *)o->buf;
	struct cow__wire_head h = {
		.magic = COW__WIRE_MAGIC,
		.version = COW__WIRE_VERSION,
		.items = (uint16_t)m->nitems,
		.packs = (uint16_t)o->npacks,
		.inline_bytes = (uint32_t)m->nbytes,
		.note_bytes = (uint32_t)note_bytes,
	};

	o->nfds = 0;
	if (c->group) {
		h.flags |= COW__WIRE_DOOR;
		h.group = c->group->id;
		o->files[o->nfds++] = c->group->door;
	}
	if (o->slot.number != COW__NO_SLOT) {
		h.flags |= COW__WIRE_SLOT;
		h.slot = o->slot.number;
		h.epoch = o->slot.epoch;
		o->files[o->nfds++] = o->slot.file;
	}
	for (unsigned i = 0; i < o->npacks; i++)
		o->files[o->nfds++] = o->packs[i]->file;
	for (unsigned i = 0; i < m->nown; i++)
		o->files[o->nfds++] = m->own[i];
	h.fds = (uint16_t)o->nfds;
	o->bytes = sizeof(h) + m->nitems * sizeof(m->items[0]) + m->nbytes +
	           note_bytes;
	h.bytes = (uint32_t)o->bytes;
	memcpy(at, &h, sizeof(h));
	at += sizeof(h);
	memcpy(at, m->items, m->nitems * sizeof(m->items[0]));
	at += m->nitems * sizeof(m->items[0]);
	memcpy(at, m->bytes, m->nbytes);
	if (note_bytes)
		memcpy(at + m->nbytes, note, note_bytes);
	o->sent = 0;
}

/* Sends what waits. 0: all of it is on its way. */
static int
push(struct cow_channel *c)
{
	struct cow__outgoing *o = &c->out;

	while (o->sent < o->bytes) {
		unsigned nfds = o->sent == 0 ? o->nfds : 0;
		int fds[COW__WIRE_FDS];
		long r;

		if (!cow__descriptor_ok(&c->socket_is)) {
			c->broken = -EBADF;
			return cow__error(-EBADF, "the channel's socket was "
			                          "closed");
		}
		/* If the program closed a number, it may be a file of the program's
		 * now, which must not go to the peer. */
		for (unsigned i = 0; i < nfds; i++) {
			fds[i] = o->files[i].fd;
			if (!cow__descriptor_ok(&o->files[i])) {
				cow__outgoing_end(c);
				return -ESTALE;
			}
		}
		r = cow__socket_send(c->socket, (char *)o->buf + o->sent,
		                     o->bytes - o->sent, fds, nfds);
		if (r < 0)
			return (int)r;
		o->sent += (size_t)r;
	}
	cow__outgoing_end(c);
	return 0;
}

static int
may_use(struct cow_channel *c)
{
	if (c->parents)
		return cow__error(-EPERM, "the channel belongs to the parent "
		                          "process: make another one after fork");
	return c->broken ? cow__error_from(c->broken, "the channel") : 0;
}

/* Handles the result of push(). -EAGAIN: the rest waits in the channel. A shortage leaves
 * the message in the channel, too. After any other error it will never arrive whole. */
static int
pushed(struct cow_channel *c, int r)
{
	if (r == 0 || r == -EAGAIN)
		return r;
	if (r == -ETOOMANYREFS || r == -ENOBUFS || r == -ENOMEM ||
	    r == -EMFILE)
		return cow__error_from(r, "too many messages or descriptors are on "
		                          "their way");
	/* Nothing of this message was sent. Others can be. */
	if (r == -ESTALE)
		return cow__error(-EBADF, "the program closed a descriptor of "
		                          "the library");
	if (r == -EMSGSIZE) {
		cow__outgoing_end(c);
		return cow__error(r, "the message is longer than a packet of the "
		                     "socket (SO_SNDBUF)");
	}
	if (r == -ECONNRESET)
		r = -EPIPE;
	c->broken = r;
	cow__outgoing_end(c);
	return cow__error_from(r, "the channel's socket");
}

static long
send_some(struct cow_channel *c, const struct cow_parcel *parcels, size_t count,
          const void *note, size_t note_bytes)
{
	struct cow__making *m = &c->making;
	size_t taken = 0, label = 0; /* bytes of the note in each part but the last */
	long longest;
	int r = 0;

	if (c->flags & COW_CHANNEL_LABELS)
		label = cow__min(note_bytes, COW_LABEL_BYTES);
	m->limit = COW__WIRE_BYTES;
	if (!c->stream && (longest = cow__socket_packet(c->socket)) > 0)
		m->limit = cow__min(COW__WIRE_BYTES, (size_t)longest);
	do {
		size_t n = 0;
		bool last;

		m->nitems = m->nown = 0;
		m->nbytes = 0;
		while (taken + n < count && !is_full(m, note_bytes)) {
			r = check(&parcels[taken + n]);
			if (r == 0)
				r = add_item(c, m, &parcels[taken + n]);
			if (r < 0)
				break;
			n++;
		}
		last = taken + n == count;
		if (n == 0 && !(last && r == 0)) {
			cow__outgoing_end(c);
			break;
		}
		encode(c, m, note, last ? note_bytes : label);
		taken += n;
		r = pushed(c, push(c));
		/* This message will never arrive. */
		if (c->broken || r == -EBADF || r == -EMSGSIZE)
			taken -= n;
		if (r < 0 || last)
			break;
	} while (true);
	/* If parcels were taken, or a note alone waits in the channel, the call succeeded. */
	return taken || c->out.bytes ? (long)taken : r;
}

COW_EXPORT long
cow_channel_send(struct cow_channel *c, const struct cow_parcel *parcels,
                 size_t count, const void *note, size_t note_bytes)
{
	long r;

	if (!c || (count && !parcels) || (note_bytes && !note) ||
	    note_bytes > COW_NOTE_MAX || (!count && !note_bytes))
		return cow__error(-EINVAL,
		                  note_bytes > COW_NOTE_MAX
		                          ? "cow_channel_send: the note is too long"
		                          : "cow_channel_send: nothing to send");
	cow__mutex_lock(&c->lock);
	r = may_use(c);
	if (r == 0 && c->out.bytes)
		r = pushed(c, push(c));
	if (r == 0)
		r = send_some(c, parcels, count, note, note_bytes);
	cow__mutex_unlock(&c->lock);
	if (r == -EAGAIN)
		return cow__error((int)r, "the channel is full");
	return r;
}

COW_EXPORT int
cow_channel_flush(struct cow_channel *c)
{
	int r;

	if (!c)
		return cow__error(-EINVAL, "cow_channel_flush: NULL");
	cow__mutex_lock(&c->lock);
	r = may_use(c);
	if (r == 0 && c->out.bytes)
		r = pushed(c, push(c));
	cow__mutex_unlock(&c->lock);
	return r;
}
