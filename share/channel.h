/* SPDX-License-Identifier: MIT */
/*
 * Channels: messages of storages over a socket
 *
 *   parcels -> homes -> items of a message -> socket -> items -> homes -> storages
 *
 * send.c makes messages, inbox.c gets them and receive.c takes them apart; a channel holds one of each
 * at a time, half sent and half received as it may be.
 *
 * A message holds what is in it by a slot of its own (share/group.h), so nobody's
 * death on the way loses anything: neither the sender's, who may go right after
 * sending, nor the receiver's, whose queue the kernel empties.
 */
#ifndef COW_SHARE_CHANNEL_H
#define COW_SHARE_CHANNEL_H

#include "cowshed-share.h"
#include "memfd/socket.h"
#include "share/home.h"
#include "share/parcel.h"
#include "share/wire.h"

#define COW__OWN_MOST 48u /* descriptors of storages in one message */

struct cow__outgoing {
	size_t bytes, sent; /* bytes 0: there is none */
	unsigned nfds;
	struct cow__descriptor files[COW__WIRE_FDS]; /* belong to those below */
	struct cow__slot slot;                       /* of this message */
	struct cow__pack *packs[COW__WIRE_FDS];
	unsigned npacks, nhomes;
	struct cow__home *homes[COW__WIRE_ITEMS];
	/* Descriptors that were made for this message. */
	struct cow__descriptor parcels[COW__OWN_MOST];
	unsigned nparcels;
	uint64_t buf[COW__WIRE_BYTES / 8];
};

/* What a message is made of while it is being made. */
struct cow__making {
	struct cow__wire_item items[COW__WIRE_ITEMS];
	unsigned char bytes[COW__WIRE_BYTES / 2];
	unsigned nitems, nown;
	size_t nbytes, limit; /* of the message */
	struct cow__descriptor own[COW__OWN_MOST];
};

struct cow__incoming {
	size_t bytes, have; /* bytes 0: its head is not there yet */
	unsigned nfds;
	bool flooded; /* more came than any message has, and were dropped */
	bool waited;  /* the program ran meanwhile: are they still ours? */
	struct cow__descriptor files[COW__WIRE_FDS]; /* ours */
	/* What was received and not asked for yet. */
	unsigned nparcels, given;
	size_t note_at, note_bytes;
	bool ready;
	struct cow_parcel parcels[COW__WIRE_ITEMS];
	uint64_t buf[COW__WIRE_BYTES / 8];
};

struct cow_channel {
	struct cow__mutex lock; /* before cow__share_lock */
	struct cow_channel *next;
	int socket;
	uint32_t flags;
	uint64_t ino;    /* the socket's, to know it again */
	bool stream, door_sent;
	bool parents;    /* made before a fork, by the parent ... */
	bool torn;       /* ... while another thread was at it */
	int broken;      /* -errno: for ever */
	struct cow_group *group;
	struct cow__outgoing out;
	struct cow__making making;
	struct cow__incoming in;
};

/* Lets go of a message that was sent, or won't be. */
void cow__outgoing_end(struct cow_channel *c);
void cow__incoming_end(struct cow_channel *c);

/* Goes on until a whole message is there. 0 or -errno. */
int cow__incoming_get(struct cow_channel *c);
void cow__incoming_close_fds(struct cow__incoming *in);

/* Are the descriptors that came still what came? */
bool cow__incoming_kept(const struct cow__incoming *in);

/* In a forked child: they are the parent's. */
void cow__channels_child(void);

/* A storage of a device into the message that is being made, and out of one: `bytes`
 * describe it, `fd` stays the caller's. */
int cow__parcel_add(struct cow_channel *c, const struct cow_parcel *p,
                    struct cow__wire_item *i);
int cow__parcel_open(struct cow_channel *c, const struct cow__wire_item *i, int fd,
                     const unsigned char *bytes, struct cow_storage **ret);

/* A sealed (or alias) home for the storage, made and moved to if need be; a
 * reference. Takes the share lock itself. */
int cow__home_for(struct cow_storage *s, enum cow_share_mode mode,
                  struct cow_group *group, struct cow__home **ret);

#endif
