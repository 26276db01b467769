/* SPDX-License-Identifier: MIT */
/*
 * Two ends of a socket, and what goes through it
 */
#ifndef COWSHED_TESTS_ENDS_H
#define COWSHED_TESTS_ENDS_H

#include "tests/support/support.h"

#include <cowshed-share.h>
#include <sys/socket.h>
#include <unistd.h>

static const enum cow_share_mode modes[] = { COW_SHARE_ALIAS, COW_SHARE_CLONE,
	                                     COW_SHARE_SEALED };
static const size_t sizes[] = { 0,    1,       511,     512,     513,
	                        4096, 5000,    MIB - 1, MIB + 3, 9 * MIB };

struct ends {
	int fd[2];
	struct cow_group *group;
	struct cow_channel *mine;
};

static inline void ends_make(struct ends *e, int type, bool grouped)
{
	must(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, e->fd) == 0);
	e->group = NULL;
	if (grouped)
		ok(cow_group_new(&e->group));
	ok(cow_channel_new(e->fd[0], e->group, COW_CHANNEL_TAKE_ALIASES,
	                   &e->mine));
}

static inline void ends_free(struct ends *e)
{
	cow_channel_free(e->mine);
	cow_group_unref(e->group);
	close(e->fd[0]);
	if (e->fd[1] >= 0)
		close(e->fd[1]);
}

static inline struct cow_parcel parcel(struct cow_storage *s, enum cow_share_mode mode)
{
	return (struct cow_parcel){
		.storage = s,
		.length = cow_storage_bytes(s),
		.mode = mode,
	};
}

static inline void send_one(struct cow_channel *c, struct cow_storage *s,
                     enum cow_share_mode mode)
{
	struct cow_parcel p = parcel(s, mode);
	long n = cow_channel_send(c, &p, 1, NULL, 0);

	if (n != 1)
		ck_abort_msg("send gave %ld: %s", n, cow_last_error());
}

static inline struct cow_storage *receive_one(struct cow_channel *c)
{
	struct cow_parcel p;
	long n = cow_channel_receive(c, &p, 1, NULL, 0, NULL);

	if (n != 1)
		ck_abort_msg("receive gave %ld: %s", n, cow_last_error());
	return p.storage;
}

static inline struct cow_channel *child_channel(struct ends *e)
{
	struct cow_channel *c;

	ok(cow_channel_new(e->fd[1], NULL,
	                   COW_CHANNEL_JOIN | COW_CHANNEL_TAKE_ALIASES, &c));
	return c;
}

/* Between the test and a child. */
struct story {
	struct ends ends;
	struct gate gate, back;
	size_t bytes;
	enum cow_share_mode mode;
};

#endif
