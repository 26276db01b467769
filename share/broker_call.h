/* SPDX-License-Identifier: MIT */
/*
 * Between share/broker.c, the connection, and share/broker_put.c, its use
 *
 * The caller of each function holds the broker's lock.
 */
#ifndef COW_SHARE_BROKER_CALL_H
#define COW_SHARE_BROKER_CALL_H

#include "share/broker.h"

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
