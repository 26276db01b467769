/* SPDX-License-Identifier: MIT */
/*
 * Test support: a descriptor whose last close waits for hours
 *
 * A TCP connection of this machine whose peer does not read, with bytes that were not
 * sent and SO_LINGER. Who sends it and closes it here leaves the last close to who
 * gets it.
 */
#ifndef COWSHED_TESTS_LINGER_H
#define COWSHED_TESTS_LINGER_H

#include "tests/support/support.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

struct lingering {
	int listens, peer, fd;
};

/* False: this machine has no network of its own. */
static inline bool linger_make(struct lingering *l)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		                 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	const struct linger hours = { 1, 10000 };
	static const char bytes[1 << 16];
	socklen_t n = sizeof(a);

	*l = (struct lingering){ -1, -1, -1 };
	l->listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l->listens < 0 || l->fd < 0 ||
	    bind(l->listens, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    listen(l->listens, 1) != 0 ||
	    getsockname(l->listens, (struct sockaddr *)&a, &n) != 0 ||
	    connect(l->fd, (struct sockaddr *)&a, n) != 0)
		return false;
	l->peer = accept4(l->listens, NULL, NULL, SOCK_CLOEXEC);
	must(l->peer >= 0);
	must(fcntl(l->fd, F_SETFL, O_NONBLOCK) == 0);
	while (write(l->fd, bytes, sizeof(bytes)) > 0)
		;
	must(setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &hours, sizeof(hours)) == 0);
	return true;
}

/* Who has it besides has the last one now. */
static inline void linger_leave(struct lingering *l)
{
	close(l->fd);
	l->fd = -1;
}

/* Whoever still waits for it goes on. */
static inline void linger_end(struct lingering *l)
{
	const struct linger never = { 0 };

	if (l->fd >= 0) {
		(void)setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &never,
		                 sizeof(never));
		close(l->fd);
	}
	if (l->peer >= 0)
		close(l->peer);
	if (l->listens >= 0)
		close(l->listens);
}

static inline bool linger_can(void)
{
	struct lingering l;
	bool can = linger_make(&l);

	linger_end(&l);
	return can;
}

#endif
