/* SPDX-License-Identifier: MIT */
/*
 * Reads the bytes and descriptors of one message from a socket. See share/channel.h.
 *
 * A message is looked at first. It is taken out of the queue when all of its descriptors
 * are here. They may then wait for the rest of the message, or until a shortage of memory
 * or descriptors is over. Each is noted with the identity of its file: meanwhile the
 * program may close the number, and get it again for a file of its own. What has no identity
 * does not wait. It is closed at once, and refused when the message is complete.
 */
#include "share/channel.h"
#include "share/parcel.h"

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
		if (in->files[i].fd >= 0 && !cow__descriptor_ok(&in->files[i]))
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

/* The number of an eventfd could be an epoll of the program's later: both have the same
 * inode, and the epoll would be closed with the message. Memory of a device may come as a
 * device's file, so these wait where devices are started. */
static struct cow__descriptor
accept(int fd)
{
	struct cow__descriptor d = cow__descriptor_of(fd);

	if (!cow__descriptor_has_identity(&d, cow__parcels() != NULL))
		cow__descriptor_drop(&d);
	return d;
}

static long
peek_message(struct cow_channel *c, size_t bytes)
{
	struct cow__incoming *in = &c->in;
	int fds[COW__WIRE_FDS];
	long r = cow__socket_look(c->socket, in->buf, bytes, fds,
	                          COW__WIRE_FDS, &in->nfds);

	in->flooded = r >= 0 && in->nfds > COW__WIRE_FDS;
	if (in->flooded)
		in->nfds = 0;
	for (unsigned i = 0; r >= 0 && i < in->nfds; i++)
		in->files[i] = accept(fds[i]);
	return r;
}

static int
closed(struct cow_channel *c)
{
	/* A part of a message is lost with its sender. */
	cow__incoming_end(c);
	return -EPIPE;
}

/* Looks at a packet, then takes it. */
static int
get_packet(struct cow_channel *c)
{
	struct cow__incoming *in = &c->in;
	long r = peek_message(c, sizeof(in->buf));

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
		return -EBADMSG; /* an empty packet, not the end */
	}
	return 0;
}

/*
 * Takes what was looked at. A look goes on past a message without descriptors, even when
 * it has all the bytes, and shows the descriptors of the next message. Taking the bytes
 * tells which message the descriptors belong to. A message with descriptors whose head
 * says that it has none is malformed.
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
		r = (long)bytes; /* the bytes are there, the descriptors are lost */
	if (n <= COW__WIRE_FDS)
		cow__socket_drop(fds, n);
	return r;
}

/* The first bytes of a message, with its descriptors. */
static int
get_first(struct cow_channel *c)
{
	struct cow__incoming *in = &c->in;
	long r = peek_message(c, sizeof(struct cow__wire_head));

	if (r == 0) {
		cow__incoming_close_fds(in);
		return closed(c);
	}
	/* Takes no more than was looked at: later bytes may bring other descriptors. */
	if (r > 0)
		r = take_first(c, (size_t)r);
	if (r <= 0) {
		cow__incoming_close_fds(in);
		return r < 0 ? (int)r : -EAGAIN;
	}
	in->have = (size_t)r;
	return 0;
}

/* Reads until `bytes` of the message are there. */
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

/* Half a head is taken, too. If the peer ends there, the message is lost; if it waits
 * there, we do not look again and again. */
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
