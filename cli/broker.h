/* SPDX-License-Identifier: MIT */
/*
 * What the files of the broker share
 *
 *      broker.c --> broker_listen.c   the socket: bound, inherited, the only one
 *              '--> broker_serve.c ---> broker_shelf.c   what is held, for whom
 *                                  |--> broker_bury.c    what is closed
 *                                  '--> broker_loop.c    io_uring, or epoll
 *
 * One thread, no queue but the kernel's: each client has at most one reply that
 * could not be sent yet, and is not listened to until it was; what was sent and is
 * not read yet is little. So what a client can cost is bounded whatever it does,
 * and nobody waits for it.
 *
 * The broker believes nothing: it holds descriptors, maps none of them, and who
 * gets one checks it again.
 */
#ifndef CLI_BROKER_H
#define CLI_BROKER_H

#include "cli/cli.h"

#include <cowshed-broker.h>

struct broker_client;

struct broker_limits {
	uint32_t objects; /* in all: descriptors */
	uint32_t of_user, of_client;
	uint32_t clients, clients_of_user;
};

/* ---- broker_listen.c ------------------------------------------------------- */

/* The address ("/path" or "@name") of options or environment. -errno after a
 * sentence. */
int broker_address(const char *path, const char *name, char ret[PATH_MAX]);

/* A listening socket there, or the one that the service manager gave. *ret_lock
 * is kept until the end. -EEXIST: there is a broker already. -errno after a
 * sentence. */
int broker_listen(const char *address, int *ret_fd, int *ret_lock);
int broker_inherited(int *ret_fd); /* 1: there is one; 0 */
void broker_unlisten(const char *address, int fd, int lock);

/* ---- broker_loop.c ---------------------------------------------------------- */

struct broker_event {
	uint32_t id, events;
};

/* By rings where they work, else (or if told so) by epoll. */
int broker_loop_open(uint32_t ids, bool epoll_only);
const char *broker_loop_name(void);

/* The next event of `fd`, once. */
int broker_loop_arm(uint32_t id, int fd, uint32_t events);
/* Before closing it; nothing may be awaited of it (it has just had its event). */
void broker_loop_forget(uint32_t id, int fd);
/* How many; 0 when the time is over (-1: never). */
int broker_loop_wait(struct broker_event *events, int max, int timeout_ms);

/* ---- broker_shelf.c ---------------------------------------------------------- */

/* A connection, or what is left of one, as a holder. */
struct broker_holder {
	uint32_t uid, objects;
	struct broker_hold *holds;
};

struct broker_object {
	struct cow_broker_item item;
	uint64_t offset;
	int fd; /* -1: no bytes */
	uint64_t dev, ino;
	uint32_t slot;
	struct broker_hold *holds;
	struct broker_object *next; /* with the same hash */
};

int broker_shelf_open(const struct broker_limits *limits);
uint32_t broker_shelf_count(void);

/* Takes `fd` over on success. -EALREADY: this very storage is there, under a name
 * that lasts. */
int broker_shelf_put(struct broker_holder *h, const struct cow_broker_message *m,
                     int fd);
/* -ENOENT, -EACCES. */
int broker_shelf_find(const struct broker_holder *h,
                      const struct cow_broker_item *item,
                      struct broker_object **ret);
int broker_shelf_drop(struct broker_holder *h,
                      const struct cow_broker_item *item);
void broker_shelf_remove(struct broker_object *o);
/* The next from *cursor on; NULL at the end. */
struct broker_object *broker_shelf_next(const struct broker_holder *h,
                                        uint64_t *cursor);
bool broker_shelf_holds(const struct broker_holder *h,
                        const struct broker_object *o);
/* The holder is dead: what nobody else holds goes. */
void broker_shelf_leave(struct broker_holder *h);

/* ---- broker_bury.c ------------------------------------------------------------- */

/* Closes what a client sent, or what holds such, without waiting for it. SIGCHLD is
 * ignored. */
void broker_bury(const int *fds, size_t n);

/* ---- broker_serve.c ------------------------------------------------------------ */

struct broker_service {
	int listener;
	bool epoll_only, others;
	int idle_ms; /* -1: for ever */
	struct broker_limits limits;
};

/* Until told to end, or idle for so long: opens all it needs, and goes round. */
int broker_open(const struct broker_service *service);
/* Waits, and serves who has asked. How many events there were; 0: the time is over;
 * -ECANCELED: told to end. */
int broker_round(int timeout_ms);
int broker_serve(const struct broker_service *service,
                 void (*started)(const char *loop));

#endif
