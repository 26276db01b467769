/* SPDX-License-Identifier: MIT */
/*
 * Receiving: makes storages of a message. See share/channel.h.
 *
 * All items of a message become storages, or none does. share/inbox.c reads the message
 * from the socket.
 */
#include "core/base/error.h"
#include "memfd/memfd.h"
#include "share/broker.h"
#include "share/channel.h"
#include "share/group.h"
#include "share/hold.h"
#include "share/parcel.h"

/* Is it a shortage that may pass? Then the message stays, and the next call tries again. */
static bool
passes(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -EUSERS || r == -EBUSY;
}

/* Translates the kernel's error about a descriptor that came. A shortage is ours. If it
 * can't be mapped, written or opened as it should, the sender sent a wrong one. */
static int
theirs(int r)
{
	switch (r) {
	case -EBADF:
	case -EPERM:
	case -EACCES:
	case -ENODEV:
	case -EINVAL:
	case -EOVERFLOW:
		return -EBADMSG;
	case -EAGAIN: /* of locks and advice: a shortage, too */
		return -ENOMEM;
	case -ENFILE:
		return -EMFILE;
	default:
		return r;
	}
}

static int
join(struct cow_channel *c, int fd, const struct cow__id *id)
{
	struct cow_group *g;
	int r;

	if (c->group && c->group->id.a == id->a && c->group->id.b == id->b)
		return 0;
	if (c->group || !(c->flags & COW_CHANNEL_JOIN))
		return -EACCES;
	r = cow__group_join(fd, &g);
	if (r < 0)
		return r == -EAGAIN ? -EUSERS : theirs(r);
	if (g->id.a != id->a || g->id.b != id->b) {
		cow__group_unref(g);
		return -EBADMSG;
	}
	c->group = g;
	return 0;
}

/* The pack that a descriptor belongs to; maps it if this process has not done so. */
static int
attach(struct cow_channel *c, const struct cow__descriptor *file,
       struct cow__pack **ret)
{
	struct cow__descriptor d;
	struct cow__pack *p;
	int r;

	if (file->fd < 0)
		return -EBADMSG;
	for (p = c->group->packs; p; p = p->next)
		if (p->file.dev == file->dev && p->file.ino == file->ino) {
			*ret = p;
			r = cow__descriptor_ok(&p->file)
			            ? 0
			            : cow__descriptor_dup(file, &p->file);
			return p->severed ? theirs(r) : 0;
		}
	r = cow__descriptor_dup(file, &d);
	if (r < 0)
		return theirs(r);
	r = theirs(cow__pack_attach(c->group, &d, ret));
	cow__descriptor_close(&d);
	return r;
}

static int
open_packed(struct cow_channel *c, const struct cow__wire_item *i,
            struct cow__pack *p, const struct cow__slot *flight,
            struct cow__home **ret)
{
	struct cow__home_key key = {
		.pack = p,
		.at = { i->page, i->pages, i->generation },
	};
	bool alias = i->mode == COW_SHARE_ALIAS, held;
	int r;

	if (!cow__pack_has(p, &key.at) || p->alias != alias)
		return -EBADMSG;
	/* If the message's slot does not hold the extent, it may belong to another storage
	 * by now: a message was sent a second time. */
	if (!cow__hold_has(p, flight, i->page) ||
	    __atomic_load_n(&p->generations[i->page], __ATOMIC_ACQUIRE) !=
	            i->generation)
		return -ESTALE;
	held = cow__hold_has(p, &c->group->mine, i->page);
	cow__hold_set(p, &c->group->mine, i->page);
	p->highest = (uint32_t)cow__max(p->highest, i->page);
	r = cow__home_open(alias ? COW__HOME_ALIAS : COW__HOME_PACKED, &key,
	                   NULL, i->bytes, ret);
	if (r < 0 && !held)
		cow__hold_clear(p, &c->group->mine, i->page);
	return theirs(r);
}

/* Is it a memfd that holds what the item says? */
static int
check_own(const struct cow_channel *c, const struct cow__wire_item *i,
          const struct cow__descriptor *file, struct cow__home_key *ret)
{
	bool alias = i->mode == COW_SHARE_ALIAS;
	uint64_t bytes;
	int r;

	if (alias && !c->group && !(c->flags & COW_CHANNEL_TAKE_ALIASES))
		return -EACCES;
	r = cow__memfd_check(file->fd,
	                     alias ? COW__SEALED_SIZE : COW__SEALED_WRITE,
	                     &bytes);
	if (r < 0)
		return theirs(r);
	if (i->file_offset > bytes || i->bytes > bytes - i->file_offset)
		return -EBADMSG;
	*ret = (struct cow__home_key){
		.dev = file->dev,
		.ino = file->ino,
		.offset = i->file_offset,
		.file_bytes = bytes,
	};
	return 0;
}

static int
open_own(const struct cow__wire_item *i, const struct cow__descriptor *file,
         const struct cow__home_key *key, struct cow__home **ret)
{
	struct cow__descriptor d;
	/* Two items may have the same descriptor, so each home gets a duplicate. */
	int r = cow__descriptor_dup(file, &d);

	if (r < 0)
		return theirs(r);
	r = cow__home_open(i->mode == COW_SHARE_ALIAS ? COW__HOME_ALIAS
	                                              : COW__HOME_SEALED,
	                   key, &d, i->bytes, ret);
	cow__descriptor_close(&d);
	return theirs(r);
}

/* A storage with the bytes that the message has. */
static int
copy_here(const struct cow__wire_item *i, const unsigned char *bytes,
          struct cow_storage **ret)
{
	void *data;
	int r = cow_storage_new(i->bytes, NULL, ret);

	if (r < 0 || i->bytes == 0)
		return r;
	r = cow_storage_data_mut(*ret, &data);
	if (r == 0)
		memcpy(data, bytes, i->bytes);
	else
		(void)cow_storage_unref(*ret);
	return r;
}

/* Gets the storage from the broker. */
static int
open_token(struct cow_channel *c, const struct cow__wire_item *i,
           const unsigned char *bytes, struct cow_storage **ret)
{
	struct cow_broker *b = cow__strategy_broker();
	struct cow_broker_item item = { .bytes = 0 }, got;
	struct cow_storage *s;
	int r;

	if (!b || (i->mode == COW_SHARE_ALIAS && !c->group &&
	           !(c->flags & COW_CHANNEL_TAKE_ALIASES))) {
		(void)cow_broker_unref(b);
		return -EACCES;
	}
	memcpy(&item.token, bytes, COW__WIRE_TOKEN_BYTES);
	r = cow_broker_get(b, &item, &s, &got);
	(void)cow_broker_unref(b);
	if (r < 0)
		return r == -ENOENT ? -ESTALE : r;
	if (got.mode != i->mode || got.bytes != i->bytes) {
		(void)cow_storage_unref(s);
		return -EBADMSG;
	}
	*ret = s;
	return 0;
}

/* The storage of an earlier item of this message that has the same sealed bytes, or NULL:
 * views of one storage that were sent together stay views of one. */
static struct cow_storage *
sealed_before(const struct cow_channel *c, const struct cow__wire *w,
              const struct cow__wire_item *i)
{
	const struct cow__descriptor *file = &c->in.files[w->own + i->index], *other;

	for (const struct cow__wire_item *k = w->items; k < i; k++) {
		if (k->kind != COW__WIRE_OWN || k->mode != COW_SHARE_SEALED ||
		    k->file_offset != i->file_offset || k->bytes != i->bytes)
			continue;
		other = &c->in.files[w->own + k->index];
		if (other->dev == file->dev && other->ino == file->ino)
			return c->in.parcels[k - w->items].storage;
	}
	return NULL;
}

/* Is the item sound, and is there a storage of it already? 1: *ret is a reference to it. 0:
 * there is none, and *ret_key is the home's. */
static int
find_own(const struct cow_channel *c, const struct cow__wire *w,
         const struct cow__wire_item *i, struct cow__home_key *ret_key,
         struct cow_storage **ret)
{
	struct cow_storage *before;
	int r = check_own(c, i, &c->in.files[w->own + i->index], ret_key);

	if (r < 0 || i->mode == COW_SHARE_CLONE)
		return r;
	if (i->mode == COW_SHARE_ALIAS)
		return cow__home_alias_back(ret_key, i->bytes, ret);
	before = sealed_before(c, w, i);
	if (before)
		*ret = cow_storage_ref(before);
	return before != NULL;
}

/* One item's storage. Takes the lock itself, for homes. */
static int
open_item(struct cow_channel *c, const struct cow__wire *w,
          const struct cow__wire_item *i, struct cow__pack **packs,
          const unsigned char **here, struct cow_storage **ret)
{
	const struct cow__slot flight = { .number = w->head.slot,
		                          .epoch = w->head.epoch };
	struct cow__home_key key;
	struct cow__home *h;
	int r;

	if (i->kind == COW__WIRE_NOTHING || i->kind == COW__WIRE_BYTES_HERE) {
		r = copy_here(i, *here, ret);
		*here += cow__round_up(i->bytes, 8);
		return r;
	}
	if (i->kind == COW__WIRE_TOKEN) {
		r = open_token(c, i, *here, ret);
		*here += COW__WIRE_TOKEN_BYTES;
		return r;
	}
	if (i->kind == COW__WIRE_DEVICE) {
		int fd = i->bytes ? c->in.files[w->own + i->index].fd : -1;

		r = i->bytes && fd < 0 ? -EBADMSG
		                       : cow__parcel_open(c, i, fd, *here, ret);
		*here += sizeof(struct cow__wire_device);
		return r;
	}
	if (i->kind == COW__WIRE_OWN) {
		r = find_own(c, w, i, &key, ret);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	cow__share_enter();
	r = i->kind == COW__WIRE_PACKED
	            ? open_packed(c, i, packs[i->index], &flight, &h)
	            : open_own(i, &c->in.files[w->own + i->index], &key, &h);
	if (r == 0) {
		r = cow__home_storage(h, ret);
		if (r < 0)
			cow__home_unref(h);
	}
	cow__share_leave();
	return r;
}

/* Ends the message's holds: this process holds what it received, and the message holds
 * nothing any more. */
static void
land(const struct cow__wire *w, struct cow__pack **packs, unsigned npacks)
{
	const struct cow__slot flight = { .number = w->head.slot,
		                          .epoch = w->head.epoch };

	for (unsigned i = 0; i < w->head.items; i++) {
		const struct cow__wire_item *item = &w->items[i];

		if (item->kind == COW__WIRE_PACKED && item->index < npacks &&
		    item->page < packs[item->index]->pages &&
		    cow__hold_has(packs[item->index], &flight, item->page))
			cow__hold_clear(packs[item->index], &flight,
			                item->page);
	}
	for (unsigned i = 0; i < npacks; i++)
		cow__hold_landed(packs[i], &flight);
}

/* Joins the message's group and maps its packs; *npacks is how many were mapped. Each is
 * counted as if a home lay in it, so that no sweep unmaps it, with its rows, meanwhile. */
static int
open_packs(struct cow_channel *c, const struct cow__wire *w, struct cow__pack **packs,
           unsigned *npacks)
{
	struct cow__incoming *in = &c->in;
	int r = 0;

	cow__share_enter();
	if (w->head.flags & COW__WIRE_DOOR)
		r = w->head.packs || (c->flags & COW_CHANNEL_JOIN)
		            ? join(c, in->files[w->door].fd, &w->head.group)
		            : 0;
	else if (w->head.packs)
		r = -EBADMSG;
	while (r == 0 && *npacks < w->head.packs) {
		r = attach(c, &in->files[w->packs + *npacks],
		           &packs[*npacks]);
		if (r == 0)
			packs[(*npacks)++]->homes++;
	}
	cow__share_leave();
	return r;
}

static int
open_all(struct cow_channel *c, const struct cow__wire *w)
{
	struct cow__incoming *in = &c->in;
	struct cow__pack *packs[COW__WIRE_FDS];
	const unsigned char *here = w->inline_bytes;
	unsigned npacks = 0;
	int r = open_packs(c, w, packs, &npacks);

	in->nparcels = in->given = 0;
	for (unsigned i = 0; r == 0 && i < w->head.items; i++) {
		const struct cow__wire_item *item = &w->items[i];
		struct cow_parcel *p = &in->parcels[in->nparcels];

		r = open_item(c, w, item, packs, &here, &p->storage);
		if (r < 0)
			break;
		p->offset = item->offset;
		p->length = item->length;
		p->mode = item->mode;
		p->strategy = COW_STRATEGY_DEFAULT;
		in->nparcels++;
	}
	if (!passes(r)) {
		cow__share_enter();
		land(w, packs, npacks);
		cow__share_leave();
	}
	if (r < 0) {
		while (in->nparcels > 0)
			(void)cow_storage_unref(
			        in->parcels[--in->nparcels].storage);
	}
	cow__share_enter();
	for (unsigned i = 0; i < npacks; i++)
		packs[i]->homes--;
	cow__share_leave();
	return r;
}

/* A whole message, made into storages. */
static int
next_message(struct cow_channel *c)
{
	struct cow__incoming *in = &c->in;
	struct cow__wire w;
	int r;

	in->waited = in->have > 0;
	if (in->bytes == 0 || in->have < in->bytes) {
		/* The program may have closed the socket and used its number again. */
		if (!cow__descriptor_ok(&c->socket_is))
			return -EBADF;
		r = cow__incoming_get(c);
		if (r < 0)
			return r;
	}
	/* Before a descriptor is used that the program may have closed. The message is lost:
	 * it is no longer in the socket's queue. */
	if (in->waited && !cow__incoming_kept(in)) {
		cow__incoming_end(c);
		return -ESTALE;
	}
	r = in->flooded ? -EBADMSG
	                : cow__wire_check(in->buf, in->bytes, in->nfds, &w);
	if (r == 0)
		r = open_all(c, &w);
	if (passes(r))
		return r;
	if (r < 0) {
		cow__incoming_end(c);
		return r;
	}
	cow__incoming_close_fds(in);
	in->note_at = (size_t)(w.note - (const unsigned char *)in->buf);
	in->note_bytes = w.head.note_bytes;
	in->ready = true;
	return 0;
}

static int
sentence(int r)
{
	static const struct {
		int error;
		const char *text;
	} said[] = {
		{ -EAGAIN, "no message has come" },
		{ -EPIPE, "the peer has closed the channel" },
		{ -EBADMSG, "a malformed message came" },
		{ -EACCES, "a message of a group, or with an alias, came, which "
		  "this channel does not take" },
		{ -ESTALE, "a message came whose storages are gone" },
		{ -EMFILE, "no descriptors are left for the message; it waits" },
		{ -EBUSY, "the message has a storage of a device whose current stream "
		  "records a graph; it waits" },
		{ -EUSERS, "all slots of the group are taken; the message waits" },
		{ -EBADF, "the channel's socket was closed" },
		{ -ENODEV, "a message came with a storage of a device that this process "
		  "does not have, or has not started (cow_cuda_start())" },
		{ -ECHILD, "a message came with a storage of a device that the parent "
		  "process started" },
		{ -ENOENT, "a group can't be joined without /proc/self/fd" },
	};

	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		if (said[i].error == r)
			return cow__error(r, said[i].text);
	return cow__error_from(r, "cow_channel_receive");
}

COW_EXPORT long
cow_channel_receive(struct cow_channel *c, struct cow_parcel *parcels,
                    size_t max, void *note, size_t note_max,
                    size_t *ret_note_bytes)
{
	struct cow__incoming *in;
	size_t n = 0, note_bytes = 0;
	int r = 0;

	if (!c || (max && !parcels) || (note_max && !note))
		return cow__error(-EINVAL, "cow_channel_receive: NULL");
	in = &c->in;
	cow__mutex_lock(&c->lock);
	if (c->parents)
		r = -EPERM;
	else if (!in->ready)
		r = c->broken == -EBADMSG ? -EBADMSG : next_message(c);
	if (r == 0) {
		for (; n < max && in->given < in->nparcels; n++)
			parcels[n] = in->parcels[in->given++];
		if (in->given == in->nparcels) {
			note_bytes = in->note_bytes;
			if (note_max)
				memcpy(note, (char *)in->buf + in->note_at,
				       cow__min(note_bytes, note_max));
			cow__incoming_end(c);
		}
	}
	cow__mutex_unlock(&c->lock);
	if (r < 0)
		return sentence(r);
	if (ret_note_bytes)
		*ret_note_bytes = note_bytes;
	return (long)n;
}
