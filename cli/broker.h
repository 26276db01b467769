/* SPDX-License-Identifier: MIT */
/*
 * What the files of the broker share
 *
 *      broker.c --> broker_listen.c   the socket: bound or inherited, one broker
 *              '--> broker_serve.c ---> broker_shelf.c   objects and their holders
 *                                  |        |--> broker_users.c  what each has
 *                                  |        '--> broker_hash.c   where they are found
 *                                  |--> broker_bury.c    closes descriptors
 *                                  '--> broker_loop.c    epoll
 *
 * The broker has one thread, and no queue but the kernel's. A client has at most
 * one reply that could not be sent yet; until it is sent the broker reads no
 * request of that client. A socket holds only a few replies that the client has
 * not read. So the cost of a client is bounded, and no other client waits for it.
 *
 * The broker trusts no client. It holds descriptors and maps none of them. A
 * client that gets a descriptor checks it again.
 */
#ifndef CLI_BROKER_H
#define CLI_BROKER_H

#include "cli/cli.h"

#include <cowshed-broker.h>

struct broker_client;

/* What is limited. A hold is a connection's share in an object. */
enum broker_kind { BROKER_CLIENT, BROKER_OBJECT, BROKER_HOLD, BROKER_KINDS };

struct broker_limit {
	uint32_t all;
	uint32_t of_others; /* of all users but root and the broker's own */
	uint32_t of_user;
};

struct broker_limits {
	struct broker_limit of[BROKER_KINDS];
	uint32_t objects_of_client;
};

/* ---- broker_listen.c ------------------------------------------------------- */

/* The address ("/path" or "@name") from the options or the environment. -errno
 * after an error message. */
int broker_address(const char *path, const char *name, char ret[PATH_MAX]);

/* Listens at the address. *ret_lock is kept open until broker_unlisten().
 * -EEXIST: there is a broker already. -errno after an error message. */
int broker_listen(const char *address, int *ret_fd, int *ret_lock);
/* The listening socket of the service manager. 1: there is one; 0: there is none.
 * -errno, for a wrong one after an error message. */
int broker_inherited(int *ret_fd);
void broker_unlisten(const char *address, int fd, int lock);

/* ---- broker_loop.c ---------------------------------------------------------- */

struct broker_event {
	uint32_t id, events;
};

int broker_loop_open(uint32_t ids);

/* From now on `fd` is watched for these events, and for no others. */
int broker_loop_arm(uint32_t id, int fd, uint32_t events);
/* Call it before closing `fd`, when no event of `fd` is asked for. */
void broker_loop_forget(uint32_t id, int fd);
/* Returns the number of events; 0: the time is over. timeout_ms -1: no limit. */
int broker_loop_wait(struct broker_event *events, int max, int timeout_ms);

/* ---- broker_hash.c ----------------------------------------------------------- */

struct broker_hash_key {
	uint64_t a, b;
};

/* A new key. 0 or -errno. */
int broker_hash_key(struct broker_hash_key *ret);
/* Of at most 31 words. */
uint64_t broker_hash(const struct broker_hash_key *key, const uint64_t *words,
                     unsigned n);

/* ---- broker_users.c ---------------------------------------------------------- */

struct broker_user {
	uint32_t id, has[BROKER_KINDS];
	struct broker_user *next; /* with the same hash */
};

/* `subordinates`: a file as /etc/subuid. NULL: each user counts as itself. */
int broker_users_open(const struct broker_limit limits[BROKER_KINDS],
                      const char *subordinates);
uint32_t broker_users_count(void);
/* A connection of this user. -ENOSPC, -ENOMEM. */
int broker_user_enter(uint32_t uid, struct broker_user **ret);
/* One more, or -ENOSPC. */
int broker_user_take(struct broker_user *u, enum broker_kind kind);
/* The user is gone when nothing is left of it. */
void broker_user_give(struct broker_user *u, enum broker_kind kind);

/* ---- broker_shelf.c ---------------------------------------------------------- */

/* A connection, as a holder of objects. */
struct broker_holder {
	uint32_t uid, objects;
	struct broker_user *user;
	struct broker_hold *holds;
};

struct broker_object {
	struct cow_broker_item item;
	uint64_t offset;
	int fd; /* -1: no bytes */
	uint64_t dev, ino;
	uint32_t slot;
	struct broker_user *user; /* whose it is */
	struct broker_hold *holds;
	struct broker_object *next; /* with the same hash */
};

/* After broker_users_open(). */
int broker_shelf_open(const struct broker_limits *limits);
uint32_t broker_shelf_count(void);
/* The bucket in which an item is looked for; its name ends. */
uint32_t broker_shelf_bucket(const struct cow_broker_item *item);

/* Takes `fd` over on success. -EALREADY: the same storage is there, under the same
 * lasting name. */
int broker_shelf_put(struct broker_holder *h, const struct cow_broker_message *m,
                     int fd);
/* -ENOENT, -EACCES. */
int broker_shelf_find(const struct broker_holder *h,
                      const struct cow_broker_item *item,
                      struct broker_object **ret);
int broker_shelf_drop(struct broker_holder *h,
                      const struct cow_broker_item *item);
void broker_shelf_remove(struct broker_object *o);
/* The next object from *cursor on that the holder may get; NULL at the end. */
struct broker_object *broker_shelf_next(const struct broker_holder *h,
                                        uint64_t *cursor);
bool broker_shelf_holds(const struct broker_holder *h,
                        const struct broker_object *o);
/* The holder has gone: removes the objects that it alone held. */
void broker_shelf_leave(struct broker_holder *h);

/* ---- broker_bury.c ------------------------------------------------------------- */

/* Closes descriptors that a client sent, or sockets that hold such descriptors. Does
 * not wait for the close. SIGCHLD must be ignored. */
void broker_bury(const int *fds, size_t n);

/* ---- broker_serve.c ------------------------------------------------------------ */

struct broker_service {
	int listener;
	bool others;
	const char *subordinates; /* a file as /etc/subuid, or NULL */
	int idle_ms; /* -1: for ever */
	struct broker_limits limits;
};

/* Opens all that serving needs. */
int broker_open(const struct broker_service *service);
/* Waits for events and serves them. Returns their number; 0: the time is over;
 * -ECANCELED: a signal told the broker to end. */
int broker_round(int timeout_ms);
/* Opens, calls `started`, and serves until a signal comes, or until nothing was
 * held and no client was there for idle_ms. */
int broker_serve(const struct broker_service *service,
                 void (*started)(void));

#endif
