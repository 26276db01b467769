/* SPDX-License-Identifier: MIT */
/*
 * Channels: messages of storages over a socket
 *
 *   parcels -> homes -> items of a message -> socket -> items -> homes -> storages
 *
 * home_for.c finds a storage's home and send.c makes the message. inbox.c reads a message
 * from the socket and receive.c makes storages of it. A channel has at most one message
 * to send and one to receive; either may be half done.
 *
 * Descriptors are checked just before they are sent. A thread of the program that opens its
 * own file under such a number after the check gives it to the peer: see memfd/descriptor.h.
 *
 * A message holds its packed storages by a slot of its own (share/slot.h). So they
 * arrive if the sender exits right after sending. If the receiver dies, the kernel
 * empties its queue and closes the slot, and nothing is held any more.
 */
#ifndef COW_SHARE_CHANNEL_H
#define COW_SHARE_CHANNEL_H

#include "cowshed-share.h"
#include "memfd/socket.h"
#include "share/home.h"
#include "share/wire.h"

#define COW__OWN_MOST 48u /* descriptors of storages in one message */

struct cow__outgoing {
	size_t bytes, sent; /* bytes 0: there is no message */
	unsigned nfds;
	struct cow__descriptor files[COW__WIRE_FDS]; /* copies: the members below own them */
	struct cow__slot slot;                       /* of this message */
	struct cow__pack *packs[COW__WIRE_FDS];
	unsigned npacks, nhomes;
	struct cow__home *homes[COW__WIRE_ITEMS];
	/* Descriptors that were made for this message. */
	struct cow__descriptor parcels[COW__OWN_MOST];
	unsigned nparcels;
	uint64_t buf[COW__WIRE_BYTES / 8];
};

/* The parts of a message while send.c makes it. */
struct cow__making {
	struct cow__wire_item items[COW__WIRE_ITEMS];
	unsigned char bytes[COW__WIRE_BYTES / 2];
	unsigned nitems, nown;
	size_t nbytes, limit; /* of the message */
	struct cow__descriptor own[COW__OWN_MOST];
};

struct cow__incoming {
	size_t bytes, have; /* bytes 0: its head is not complete yet */
	unsigned nfds;
	bool flooded; /* more descriptors came than any message has; all were closed */
	bool waited;  /* the program ran meanwhile, and may have closed descriptors */
	struct cow__descriptor files[COW__WIRE_FDS]; /* ours */
	/* Parcels that the program has not asked for yet. */
	unsigned nparcels, given;
	size_t note_at, note_bytes;
	bool ready;
	struct cow_parcel parcels[COW__WIRE_ITEMS];
	uint64_t buf[COW__WIRE_BYTES / 8];
};

struct cow_channel {
	struct cow__mutex lock; /* taken before cow__share_lock */
	struct cow_channel *next;
	int socket;
	uint32_t flags;
	struct cow__descriptor socket_is; /* its identity: is the number still that socket? */
	bool stream;
	bool parents;    /* the parent made it before the fork ... */
	bool torn;       /* ... and another thread used it at the fork */
	int broken;      /* -errno: the channel is broken for good */
	struct cow_group *group;
	struct cow__outgoing out;
	struct cow__making making;
	struct cow__incoming in;
};

/* Frees what a message has, whether it was sent or not; the same of a received one. */
void cow__outgoing_end(struct cow_channel *c);
void cow__incoming_end(struct cow_channel *c);

/* Reads on until a whole message is there. 0 or -errno. */
int cow__incoming_get(struct cow_channel *c);
void cow__incoming_close_fds(struct cow__incoming *in);

/* Are the descriptors still the files that came, or did the program close one? */
bool cow__incoming_kept(const struct cow__incoming *in);

/* In a forked child: marks all channels as the parent's. */
void cow__channels_child(void);

/* A reference to the home that the storage is sent from in this mode. If the storage has
 * no such home, makes one. Takes the share lock itself. */
int cow__home_for(struct cow_storage *s, enum cow_share_mode mode,
                  struct cow_group *group, struct cow__home **ret);

#endif
