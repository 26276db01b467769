/* SPDX-License-Identifier: MIT */
/*
 * The bytes and descriptors of one message, out of a socket. See share/channel.h.
 *
 * A message is looked at, and taken out of the queue only when all of its
 * descriptors are here. They may wait here for a while, for the rest of the message
 * or for room; what file each of them is is remembered, for the program may close
 * the number meanwhile and get it back for a file of its own.
 */
#include "share/channel.h"

void
cow__incoming_close_fds(struct cow__incoming *in)
{
	for (unsigned i = 0; i < in->nfds; i++)
		cow__descriptor_drop(&in->files[i]);
	in->nfds = 0;
}

bool
cow__incoming_kept(const struct cow__incoming *in)
{
	for (unsigned i = 0; i < in->nfds; i++)
		if (!cow__descriptor_ok(&in->files[i]))
			return false;
	return true;
}

void
cow__incoming_end(struct cow_channel *c)
{
	struct cow__incoming *in = &c->in;

	cow__incoming_close_fds(in);
	while (in->given < in->nparcels)
		(void)cow_storage_unref(in->parcels[in->given++].storage);
	in->bytes = in->have = 0;
	in->nparcels = in->given = 0;
	in->note_bytes = 0;
	in->ready = in->flooded = in->waited = false;
}

static long
look(struct cow_channel *c, size_t bytes)
{
	struct cow__incoming *in = &c->in;
	int fds[COW__WIRE_FDS];
	long r = cow__socket_look(c->socket, in->buf, bytes, fds,
	                          COW__WIRE_FDS, &in->nfds);

	in->flooded = r >= 0 && in->nfds > COW__WIRE_FDS;
	if (in->flooded)
		in->nfds = 0;
	for (unsigned i = 0; r >= 0 && i < in->nfds; i++)
		in->files[i] = cow__descriptor_of(fds[i]);
	return r;
}

static int
closed(struct cow_channel *c)
{
	/* In the middle of a message: it is lost with its sender. */
	cow__incoming_end(c);
	return -EPIPE;
}

/* A packet, looked at and then taken. */
static int
get_packet(struct cow_channel *c)
{
	struct cow__incoming *in = &c->in;
	long r = look(c, sizeof(in->buf));

	if (r < 0)
		return (int)r;
	if (r == 0 && cow__socket_ended(c->socket)) {
		cow__incoming_close_fds(in);
		return closed(c);
	}
	(void)cow__socket_take(c->socket, &(char){ 0 }, 1);
	in->bytes = in->have = (size_t)r;
	if (r == 0) {
		cow__incoming_close_fds(in);
		return -EBADMSG; /* a packet of no bytes is no end */
	}
	return 0;
}

/*
 * Takes what was looked at. Looking goes on past a message without descriptors, even
 * with all bytes that were asked for, and shows those of the next one: taking them
 * tells whose they are. A message that has some and says that it has none is not sound.
 */
static long
take_first(struct cow_channel *c, size_t bytes)
{
	struct cow__incoming *in = &c->in;
	struct cow__wire_head head;
	int fds[COW__WIRE_FDS];
	unsigned n = 0;
	long r;

	memcpy(&head, in->buf, cow__min(bytes, sizeof(head)));
	if ((in->nfds == 0 && !in->flooded) || bytes < sizeof(head) || head.fds)
		return cow__socket_take(c->socket, in->buf, bytes);
	cow__incoming_close_fds(in);
	r = cow__socket_get(c->socket, in->buf, bytes, fds, COW__WIRE_FDS, &n);
	in->flooded = r == -EMFILE || (r > 0 && n > 0);
	if (r == -EMFILE)
		r = (long)bytes; /* only the descriptors were not to be had */
	if (n <= COW__WIRE_FDS)
		cow__socket_drop(fds, n);
	return r;
}

/* The first bytes of a message, with its descriptors. */
static int
get_first(struct cow_channel *c)
{
	struct cow__incoming *in = &c->in;
	long r = look(c, sizeof(struct cow__wire_head));

	if (r == 0) {
		cow__incoming_close_fds(in);
		return closed(c);
	}
	/* No more than was looked at: what comes later may bring others. */
	if (r > 0)
		r = take_first(c, (size_t)r);
	if (r <= 0) {
		cow__incoming_close_fds(in);
		return r < 0 ? (int)r : -EAGAIN;
	}
	in->have = (size_t)r;
	return 0;
}

/* All up to `bytes` of the message, of which the first are there. */
static int
get_up_to(struct cow_channel *c, size_t bytes)
{
	struct cow__incoming *in = &c->in;

	while (in->have < bytes) {
		long r = cow__socket_read(c->socket, (char *)in->buf + in->have,
		                          bytes - in->have);

		if (r < 0)
			return (int)r;
		if (r == 0)
			return closed(c);
		in->have += (size_t)r;
	}
	return 0;
}

/* Half a head is taken, too: a peer that ends there is gone, and one that waits
 * there shall not keep us looking. */
static int
get_stream(struct cow_channel *c)
{
	struct cow__incoming *in = &c->in;
	struct cow__wire_head head;
	int r = in->have ? 0 : get_first(c);
	long length;

	if (r == 0 && in->bytes == 0) {
		r = get_up_to(c, sizeof(head));
		if (r < 0)
			return r;
		memcpy(&head, in->buf, sizeof(head));
		length = cow__wire_length(&head);
		if (length < 0) {
			cow__incoming_end(c);
			c->broken = -EBADMSG;
			return -EBADMSG;
		}
		in->bytes = (size_t)length;
	}
	return r < 0 ? r : get_up_to(c, in->bytes);
}

int
cow__incoming_get(struct cow_channel *c)
{
	return c->stream ? get_stream(c) : get_packet(c);
}
