/* SPDX-License-Identifier: MIT */
/*
 * A client of the broker
 *
 * One connection, one request at a time. What this process put is kept in a list,
 * with the home it lies in, so that it can be put again when the broker was
 * restarted: the broker's memory is its clients' memory.
 *
 * What is dropped by its first receiver (ONCE) is not in the list: nobody tells
 * its sender when that was.
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
	struct cow__mutex lock; /* before cow__share_lock */
	uint64_t refs;
	struct cow_broker *next; /* of this process's */
	struct cow__descriptor socket;
	struct cow__put *puts;
	struct cow__put *parents; /* after a fork: to be let go of */
	int restored;             /* 0, or what putting again last said */
	uint32_t flags, timeout_ms;
	char address[COW__ADDRESS_MAX + 1];
	char program[256];
};

/* In a forked child: their connections are the parent's. */
void cow__brokers_child(void);

/* Which of a parcel's strategies counts; BROKER: with the broker, a reference. */
enum cow_strategy cow__strategy_of(uint32_t strategy, struct cow_broker **ret);
/* The broker to get tokens from, a reference, or NULL. */
struct cow_broker *cow__strategy_broker(void);

#endif
