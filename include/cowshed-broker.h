/* SPDX-License-Identifier: MIT */
/*
 * cowshed: a broker of storages
 *
 * Library: libcowshed (pkg-config cowshed).
 *
 * `cowshed broker` is a process that holds storages for others: under names
 * that people choose, or under tokens that nobody can guess. A process that has
 * the name or token, and the permission, gets the storage. The two processes
 * need no socket between them, and need not know each other.
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
 * The broker holds descriptors and maps nothing. If it is killed, every storage
 * stays as it is in every process. When a broker is back, a process that put
 * something registers it again at its next call here.
 *
 * Tokens live as long as a process that put them. Names live until they are
 * dropped (EPHEMERAL names: as long as their maker). Channels can use the same
 * broker: see cow_strategy_set().
 *
 * Errors, ownership and threads are as in cowshed.h. A call waits for the
 * broker, but not for ever: -ETIMEDOUT. Calls of several threads on one handle
 * go one after the other. fork: the child has a connection of its own. It holds
 * nothing that its parent put.
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

/* 128 bits; random if the library makes them. {0, 0} is no token. */
struct cow_token {
	uint64_t a, b;
};

enum cow_broker_item_flags {
	/* A name that goes with its last holder, as tokens do. */
	COW_BROKER_EPHEMERAL = 1 << 0,
	/* The broker drops it when the first process gets it. */
	COW_BROKER_ONCE = 1 << 1,
};

/* Describes a storage that the broker has. */
struct cow_broker_item {
	char name[COW_BROKER_NAME]; /* "": the token counts */
	struct cow_token token;
	uint64_t bytes;
	uint32_t mode;        /* enum cow_share_mode */
	uint32_t permissions; /* as of a file: 0600, 0644, 0666 */
	uint32_t uid;         /* of the process that put it */
	uint32_t flags;       /* enum cow_broker_item_flags */
};

enum cow_broker_open_flags {
	/* Starts a broker if there is none: `program broker --on-demand`. */
	COW_BROKER_START = 1 << 0,
	/*
	 * Takes the process that listens there for the broker, whatever its
	 * user. Without this flag each connection wants a process of this
	 * (effective) user or of root. The process that listens reads all that
	 * is put. Anybody may have taken an abstract name, or a path in a
	 * folder that others can write.
	 */
	COW_BROKER_ANY_USER = 1 << 1,
};

struct cow_broker_options {
	size_t size; /* sizeof(struct cow_broker_options) */
	/* A path from '/' on, or "@name" (abstract, unix(7)). NULL:
	 * /run/user/UID/cowshed/broker. XDG_RUNTIME_DIR points to that folder
	 * in a login session; the library does not read the environment for
	 * it. */
	const char *address;
	/* The program that START runs. NULL: "cowshed", looked up in PATH. A
	 * program with raised privileges (set-user-ID) must give a path from '/'
	 * on, else -EPERM; the program that it starts gets no environment. */
	const char *program;
	uint32_t flags;      /* enum cow_broker_open_flags */
	uint32_t timeout_ms; /* for one answer, whatever interrupts it; 0: 5000 */
};

/*
 * Connects to a broker. `options` may be NULL. *ret is a reference.
 *
 *   -ENOENT, -ECONNREFUSED, -ECONNRESET   there is no broker
 *   -ENAMETOOLONG   the address does not fit into a socket's (107 bytes)
 *   -EPERM          the broker does not serve this user, or is another
 *                   user's (see ANY_USER); START without a path, see above
 *   -EPROTO         what answers is no broker of this version
 *   -ETIMEDOUT      it accepts nobody, or does not answer
 *   -ENOSPC         it has no room for another client
 *   -EINVAL         an address without '/' or '@'; unknown flags
 *   -E2BIG          options of another version
 *   -ENOMEM, -EMFILE
 */
int cow_broker_open(const struct cow_broker_options *options,
                    struct cow_broker **ret);

/* Takes and gives back a reference; atomic. The last unref closes the
 * connection: items that were put through it under no lasting name go, unless
 * another process holds them. Both take NULL. unref returns NULL. */
struct cow_broker *cow_broker_ref(struct cow_broker *broker);
struct cow_broker *cow_broker_unref(struct cow_broker *broker);

/*
 * Gives the broker a storage: under item->name, or under a token if that is "".
 * The token is item->token, or a new one if that is zero. On success `item` has
 * the token, the bytes and the user. The storage stays the caller's. CLONE and
 * SEALED give the bytes of this moment. ALIAS moves the storage to where others
 * can write it. Another process that puts the same storage under the same token
 * becomes a holder, too.
 *
 * Until the item is dropped or the process ends, the process keeps the
 * storage's pages, and registers the item again with a new broker
 * (cow_broker_release() ends both). With ONCE it does neither.
 *
 * Permissions. The owner and root may always get the item. Other users need 04
 * of the permissions; for an alias they need 06. Putting the item again under
 * its token, or its EPHEMERAL name, sets its permissions anew. After a restart
 * of the broker they are those of the holder that registers the item last.
 *
 *   -EEXIST       a lasting name is taken, by whatever storage; a token or
 *                 EPHEMERAL name has another storage, owner, mode or flags
 *   -EINVAL       no name (a '/', a control character, or no zero at the
 *                 end), no such mode, permissions or flags
 *   -ENOSPC       the limit of the broker, of this user, or of this client
 *   -EBADF        the program closed a descriptor of the library
 *   -EOPNOTSUPP   element hooks, or memory of another device
 *   other         as for cow_storage_export() and cow_broker_open()
 */
int cow_broker_put(struct cow_broker *broker, struct cow_storage *storage,
                   struct cow_broker_item *item);

/*
 * Gets the storage of item->name, or of item->token if that is "". *ret is a
 * reference. `ret_item`, if not NULL, gets the broker's description.
 *
 *   -ENOENT    nothing is there; or there is no broker
 *   -EACCES    it is another user's, and not permitted
 *   -EINVAL    no zero at the name's end
 *   -EBADMSG   the broker's answer is not sound
 *   other      as for cow_storage_import() and cow_broker_open()
 */
int cow_broker_get(struct cow_broker *broker, const struct cow_broker_item *item,
                   struct cow_storage **ret, struct cow_broker_item *ret_item);

/*
 * Makes the broker forget a name or a token, for all holders. Only its user and
 * root may do so. Processes that have the storage keep it.
 *
 *   -ENOENT   nothing is there; or there is no broker
 *   -EACCES   it is another user's
 *   -EINVAL   no zero at the name's end
 *   other     as for cow_broker_open()
 */
int cow_broker_drop(struct cow_broker *broker,
                    const struct cow_broker_item *item);

/*
 * Gives back what the process keeps of an item that it put: the storage's pages,
 * and registering the item again with a new broker. The broker keeps the item as
 * before, and the process stays its holder. So the pages are freed as soon as
 * any process drops the item, unless storages have them. Asks the broker
 * nothing. fork: the child keeps nothing of its parent's items.
 *
 *   -ENOENT   the process keeps nothing under that name or token
 *   -EINVAL   no zero at the name's end
 */
int cow_broker_release(struct cow_broker *broker,
                       const struct cow_broker_item *item);

/*
 * Lists what this user may get. *cursor is 0 before the first call; each call
 * moves it on. Returns 1 with the next item, or 0 at the end. Tokens of other
 * connections are not told: those items have token zero.
 *
 *   -EBADMSG   the broker's answer is not sound
 *   other      as for cow_broker_open()
 */
int cow_broker_list(struct cow_broker *broker, uint64_t *cursor,
                    struct cow_broker_item *ret);

/*
 * Connects again if the broker was restarted, and registers again what this
 * process holds there. Every other call does that first, too, but does not say
 * what could not be registered.
 *
 *   -EEXIST   another process has the name or token; all else is
 *             registered. Each call tries it again, until it succeeds or
 *             cow_broker_drop() was asked to drop it
 *   other     as for cow_broker_put()
 */
int cow_broker_refresh(struct cow_broker *broker);

/* ---- Channels by way of a broker: cow_broker_channel(3) ----------------- */

enum cow_strategy {
	COW_STRATEGY_DEFAULT = 0, /* of a parcel: the process's strategy */
	COW_STRATEGY_FD = 1,      /* descriptors travel in the message */
	COW_STRATEGY_BROKER = 2,  /* a token travels; the receiver gets the
	                             storage from the broker by it */
};

/*
 * Sets how cow_channel_send() of this process sends; a parcel's `strategy`
 * overrides it. It begins as COW_STRATEGY_FD. `broker`: where tokens are put
 * and got; the library keeps a reference. NULL: the broker that was set before.
 * Thread-safe. A receiver calls this, too, with any strategy, to name the
 * broker: else receiving a token is -EACCES.
 *
 * A token is for one receiver, and goes with its sender. The sender must live
 * until it was received; else receiving it is -ESTALE. Clones of at most 512
 * bytes, and storages of 0 bytes, travel in the message all the same.
 *
 *   -EINVAL   no such strategy; BROKER, and no broker was ever given
 */
int cow_strategy_set(enum cow_strategy strategy, struct cow_broker *broker);

/* The process's strategy. Never fails. */
enum cow_strategy cow_strategy_get(void);

/* ---- The protocol: cow_broker_protocol(3) ------------------------------- */

/*
 * For programs without the library. The socket is a SOCK_SEQPACKET. A request
 * is one message and a reply is one message, each of exactly this struct, in
 * the machine's byte order. One descriptor (SCM_RIGHTS in unix(7)) comes with
 * PUT, and in the reply to GET, if bytes > 0: a memfd, sealed as
 * cow_storage_import() wants it. Anything else gets -EBADMSG, and the broker
 * closes the connection.
 *
 * The reply to a PUT of what is there already under a lasting name is -EEXIST
 * with the item that was sent. All other errors come with an item of zeros. A
 * client that sends several requests at once must read: the broker answers a
 * GET when the client has read the descriptor before it.
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
