/* SPDX-License-Identifier: MIT */
/*
 * A broker of its own for a test: the command, started as a child
 */
#ifndef COWSHED_TESTS_BROKER_H
#define COWSHED_TESTS_BROKER_H

#include "tests/support/left.h"
#include "tests/support/support.h"

#include <cowshed-broker.h>
#include <errno.h>

struct host {
	char folder[LEFT_NAME], address[108];
	bool only_ours; /* for the test's use */
	pid_t pid;      /* 0: none */
};

/* The command beside this program. */
const char *host_program(void);

/* A place where no broker is yet: in a folder, or an abstract name. */
void host_place(struct host *host, bool abstract);

/*
 * Starts one, which listens when this returns. `how`: NULL, an option, or
 * "activated" (is given its socket), "abstract", "others" (serves other users, too), "few" (so,
 * with 64 descriptors).
 */
void host_start(struct host *host, const char *how);
void host_again(struct host *host, const char *how); /* at the same place */
void host_kill(struct host *host);
void host_end(struct host *host);

/* Under a name ("": a token), for this user alone. */
struct cow_broker_item host_item(const char *name, enum cow_share_mode mode);

struct cow_broker *host_connect(struct host *host);
int host_dial(struct host *host); /* a bare socket */
pid_t host_peer(struct host *host); /* whoever listens there */
int host_objects(struct cow_broker *broker); /* how many it lists */
long host_fds(struct host *host); /* how many it has open */

#endif
