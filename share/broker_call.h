/* SPDX-License-Identifier: MIT */
/*
 * Between share/broker.c, the connection, and share/broker_put.c, its use. All of
 * these want the broker's lock.
 */
#ifndef COW_SHARE_BROKER_CALL_H
#define COW_SHARE_BROKER_CALL_H

#include "share/broker.h"

/* 1: connected now, and all was put again; 0: was connected. */
int cow__broker_connect(struct cow_broker *b);

/* Asks, if need be of the broker that came after the one that went. `fd` goes
 * along unless -1; one that comes goes to ret_fd (NULL: none is wanted). */
int cow__broker_call(struct cow_broker *b, struct cow_broker_message *m, int fd,
                     int *ret_fd);

/* Remembers what was put; takes the reference over. */
int cow__put_note(struct cow_broker *b, const struct cow_broker_item *item,
                  struct cow__home *h);
void cow__put_forget(struct cow_broker *b, const struct cow_broker_item *item);

/* Words a failure of the connection; returns it. */
int cow__broker_sentence(int r);

#endif
