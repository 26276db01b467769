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
 */
#ifndef COW_SHARE_BROKER_H
#define COW_SHARE_BROKER_H

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

/* In a forked child: closes the connections, which are the parent's. */
void cow__brokers_child(void);

/* The strategy of a parcel: its own, or the process's if it is DEFAULT. For BROKER *ret
 * is a reference to the broker that was set, or NULL; else it is NULL. */
enum cow_strategy cow__strategy_of(uint32_t strategy, struct cow_broker **ret);
/* A reference to the broker that tokens are got from, or NULL. */
struct cow_broker *cow__strategy_broker(void);

#endif
