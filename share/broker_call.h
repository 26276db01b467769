/* SPDX-License-Identifier: MIT */
/*
 * A connection to the broker: between share/broker.c, which makes it, and share/broker_put.c
 *
 * The caller of each function holds the broker's lock.
 */
#ifndef COW_SHARE_BROKER_CALL_H
#define COW_SHARE_BROKER_CALL_H

#include "cowshed-broker.h"
#include "memfd/dial.h"
#include "share/home.h"

struct cow__put {
	struct cow__put *next;
	struct cow_broker_item item;
	struct cow__home *home; /* NULL: zero bytes */
};

struct cow_broker {
	struct cow__mutex lock; /* taken before cow__share_lock */
	uint64_t refs;
	struct cow_broker *next; /* in the list of this process's connections */
	struct cow__descriptor socket;
	struct cow__put *puts;
	struct cow__put *parents; /* in a forked child: the parent's puts, to be freed */
	int restored;             /* 0, or the error of the last try to put all again */
	uint32_t flags, timeout_ms;
	char address[COW__ADDRESS_MAX + 1];
	char program[256];
};

/* 1: connected by this call, which put all again; 0: was connected before; -errno. */
int cow__broker_connect(struct cow_broker *b);

/* Sends a request and waits for the answer. If the broker has ended, connects to the next
 * one and asks that. `fd` is sent along unless it is -1, and stays the caller's, who has
 * checked it: another thread may still put another file there (memfd/descriptor.h). A
 * descriptor that comes is the caller's, in *ret_fd; with ret_fd NULL it is closed. */
int cow__broker_call(struct cow_broker *b, struct cow_broker_message *m, int fd,
                     int *ret_fd);

/* Remembers what was put; takes the reference over on success. -ENOMEM. */
int cow__put_note(struct cow_broker *b, const struct cow_broker_item *item,
                  struct cow__home *h);

/* Forgets it again. Returns whether there was something to forget. */
bool cow__put_forget(struct cow_broker *b, const struct cow_broker_item *item);

/* Leaves the sentence for a failure of the connection, and returns `r`. */
int cow__broker_sentence(int r);

#endif
