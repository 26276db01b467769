/* SPDX-License-Identifier: MIT */
/*
 * cowshed: a broker of storages
 *
 * `cowshed broker` is a process that holds storages for others, under names that
 * people choose or under tokens that nobody can guess. Who has the name or the
 * token, and the permission, gets the storage: no socket between the two is
 * needed, and the one who gave it may be somebody never met.
 *
 *      struct cow_broker *b;
 *      struct cow_broker_item item = { .name = "weights", .permissions = 0600,
 *                                      .mode = COW_SHARE_SEALED };
 *
 *      cow_broker_open(NULL, &b);
 *      cow_broker_put(b, storage, &item);
 *
 *      cow_broker_get(b, &item, &storage);               in the other process
 *
 * The broker holds descriptors and maps nothing. If it is killed every storage
 * stays what it is, in every process; what was registered is registered again by
 * whoever put it, at that process's next call here, when a broker is back.
 *
 * Tokens live as long as a process that put them does; names until they are
 * dropped (or as long as their maker: EPHEMERAL). The same broker can stand
 * behind channels, too: see cow_strategy_set().
 *
 * Errors, ownership and threads are as in cowshed.h. A call waits for the broker,
 * but not for ever: -ETIMEDOUT. fork: the child has a connection of its own, and
 * nothing of what its parent put is the child's to hold.
 */
#ifndef COWSHED_BROKER_H
#define COWSHED_BROKER_H

#include "cowshed-share.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a name, with the zero at its end. */
#define COW_BROKER_NAME 64

struct cow_broker;

struct cow_token {
	uint64_t a, b;
};

enum cow_broker_item_flags {
	/* A name that goes with its last holder, as tokens do. */
	COW_BROKER_EPHEMERAL = 1 << 0,
	/* The first to get it drops it. */
	COW_BROKER_ONCE = 1 << 1,
};

/* What the broker has. */
struct cow_broker_item {
	char name[COW_BROKER_NAME]; /* "": the token counts */
	struct cow_token token;
	uint64_t bytes;
	uint32_t mode;        /* enum cow_share_mode */
	uint32_t permissions; /* as of a file: 0600, 0644, 0666 */
	uint32_t uid;         /* of who put it */
	uint32_t flags;
};

enum cow_broker_open_flags {
	/* Starts a broker if there is none: `program broker --on-demand`. */
	COW_BROKER_START = 1 << 0,
	/*
	 * Takes what listens there for the broker, whoever's process it is; else only
	 * one of this (effective) user or of root, at each connection. Who listens
	 * reads all that is put, and an abstract name, or a path in a folder that
	 * others can write, anybody may have taken.
	 */
	COW_BROKER_ANY_USER = 1 << 1,
};

struct cow_broker_options {
	size_t size;
	/* A path, or "@name" (abstract). NULL: /run/user/UID/cowshed/broker, which is
	 * where XDG_RUNTIME_DIR points in a login session: the library does
	 * not ask the environment for it. */
	const char *address;
	/* What START runs. NULL: "cowshed", looked up in PATH. A program with raised
	 * privileges (set-user-ID) must say a path from '/' on, else -EPERM; what it
	 * starts gets no environment. */
	const char *program;
	uint32_t flags;
	uint32_t timeout_ms; /* for one answer, whatever interrupts it; 0: 5000 */
};

/*
 * Connects. `options` may be NULL. -ENOENT, -ECONNREFUSED: there is no broker;
 * -ENAMETOOLONG: the address does not fit into a socket's (107 bytes); -EPERM: the
 * broker does not serve this user, or is another user's (ANY_USER), or START is asked
 * for as said above; -EPROTO: what answers is no broker of this version; -ETIMEDOUT: it
 * accepts nobody, or does not answer.
 */
int cow_broker_open(const struct cow_broker_options *options,
                    struct cow_broker **ret);

/* References, atomic. What the last one has put and is not named goes with it.
 * unref takes NULL and returns NULL. */
struct cow_broker *cow_broker_ref(struct cow_broker *broker);
struct cow_broker *cow_broker_unref(struct cow_broker *broker);

/*
 * Gives the broker a storage under item->name or, if that is "", under a token:
 * item->token, or a new one if that is zero. CLONE and SEALED give the bytes of
 * this moment, ALIAS moves the storage to where others can write it. The same
 * token and the same storage put by another process make that one a holder, too.
 *
 * Others than the owner may get it with 04, aliases with 06, of the permissions.
 * What is put again under its token, or its EPHEMERAL name, has the permissions of
 * that time from then on; after a restart of the broker those of the holder that
 * registers it last.
 *
 * -EEXIST: the name is taken, by whatever it is if it lasts; the token or EPHEMERAL
 * name has another storage, owner, mode or other flags; -EINVAL: no name (empty, a
 * '/', a control character, or not ended), mode, permissions or flags; -ENOSPC: the
 * broker's or this user's limit; -EBADF: the program closed a descriptor of the
 * library's; else as cow_storage_export().
 */
int cow_broker_put(struct cow_broker *broker, struct cow_storage *storage,
                   struct cow_broker_item *item);

/* The storage, a new reference. ret_item (may be NULL) says more about it.
 * -ENOENT: nothing is there; -EACCES: it is another user's. */
int cow_broker_get(struct cow_broker *broker, const struct cow_broker_item *item,
                   struct cow_storage **ret, struct cow_broker_item *ret_item);

/* The broker forgets it: names of one's own user, tokens for all holders. Who has
 * the storage keeps it. */
int cow_broker_drop(struct cow_broker *broker,
                    const struct cow_broker_item *item);

/*
 * The next of what this user may see: *cursor is 0 at first. 1, or 0 at the end.
 * Tokens of other connections are not told: those items have token zero.
 */
int cow_broker_list(struct cow_broker *broker, uint64_t *cursor,
                    struct cow_broker_item *ret);

/*
 * Connects again if the broker was restarted, and registers again what this
 * process holds there. Every other call does that first, too, and says nothing of
 * what could not be registered.
 *
 * -EEXIST: a name or token is somebody else's now; all else is registered. It is
 * tried again at each call, until it succeeds or cow_broker_drop() was asked to
 * drop it. Else as cow_broker_put().
 */
int cow_broker_refresh(struct cow_broker *broker);

/* ---- Channels by way of a broker: cow_broker_channel(3) ----------------- */

enum cow_strategy {
	COW_STRATEGY_DEFAULT = 0, /* of a parcel: what the process's is */
	COW_STRATEGY_FD = 1,      /* descriptors travel in the message */
	COW_STRATEGY_BROKER = 2,  /* a token travels; the receiver gets it there */
};

/*
 * How cow_channel_send() sends, for this process; a parcel's `strategy` overrides
 * it. `broker` is where tokens are put and got; a reference is kept. NULL: the
 * one that was set before; if none was, -EINVAL for BROKER.
 *
 * A token is for one receiver, and gone with its sender: who sends so must live
 * until it was received (-ESTALE there otherwise). Storages of at most 512 bytes
 * and none travel in the message all the same. A receiver needs this call, too
 * (with any strategy), to say which broker: else -EACCES.
 */
int cow_strategy_set(enum cow_strategy strategy, struct cow_broker *broker);
enum cow_strategy cow_strategy_get(void);

/* ---- The protocol: cow_broker_protocol(3) ------------------------------- */

/*
 * For programs without the library. Over SOCK_SEQPACKET, one message a request and
 * one a reply, each of exactly this struct, in the machine's byte order; with PUT
 * and in the reply to GET, if bytes > 0, comes one descriptor (SCM_RIGHTS): a
 * memfd, sealed as cow_storage_import() wants it. Anything else gets -EBADMSG,
 * and the connection is closed.
 *
 * A PUT of what is there already, under a name that lasts, gets -EEXIST and the item
 * that was sent; all other errors, an item of zeros. Who sends several requests at
 * once has to read: a GET is answered when the descriptor before was read.
 */
#define COW_BROKER_MAGIC 0x62776f63u /* "cowb" */
#define COW_BROKER_VERSION 1

enum cow_broker_operation {
	COW_BROKER_HELLO,
	COW_BROKER_PUT,
	COW_BROKER_GET,
	COW_BROKER_DROP,
	COW_BROKER_LIST,
	COW_BROKER_OPERATIONS,
};

struct cow_broker_message {
	uint32_t magic;
	uint16_t version, operation;
	int32_t result; /* of a reply: 0, 1 or -errno */
	uint32_t reserved;
	uint64_t offset; /* of the bytes in the memfd; LIST: the cursor */
	struct cow_broker_item item;
};

#ifdef __cplusplus
}
#endif

#endif
