/* SPDX-License-Identifier: MIT */
/*
 * A client of the broker
 *
 * A client has one connection and makes one request at a time. It keeps a list of what
 * it put, each entry with the home of its bytes. When the broker was restarted, the
 * client puts the list again: the broker's memory is its clients' memory.
 *
 * An item with the flag ONCE is not in the list. Its first receiver drops it, and nobody
 * tells the client that put it.
 *
 * This is what the rest of share/ sees of it; share/broker_call.h has the connection.
 */
#ifndef COW_SHARE_BROKER_H
#define COW_SHARE_BROKER_H

#include "cowshed-broker.h"

/* In a forked child: closes the connections, which are the parent's. */
void cow__brokers_child(void);

/* The strategy of a parcel: its own, or the process's if it is DEFAULT. For BROKER *ret
 * is a reference to the broker that was set, or NULL; else it is NULL. */
enum cow_strategy cow__strategy_of(uint32_t strategy, struct cow_broker **ret);
/* A reference to the broker that tokens are got from, or NULL. */
struct cow_broker *cow__strategy_broker(void);

#endif
