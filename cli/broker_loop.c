/* SPDX-License-Identifier: MIT */
/*
 * Waits for many sockets, by epoll
 *
 * Level-triggered: an edge would have to be answered by reading until the socket is empty, which
 * costs a call for each request.
 */
#include "cli/broker.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

static int epoll = -1;
static uint32_t *watched; /* events by id; 0: not added */

int broker_loop_open(uint32_t ids)
{
	watched = calloc(ids, sizeof(*watched));
	epoll = epoll_create1(EPOLL_CLOEXEC);
	return watched == NULL ? -ENOMEM : epoll < 0 ? -errno : 0;
}

int broker_loop_arm(uint32_t id, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data = { .u32 = id } };

	if (watched[id] == events)
		return 0;
	if (epoll_ctl(epoll, watched[id] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
	              &e) < 0)
		return -errno;
	watched[id] = events;
	return 0;
}

void broker_loop_forget(uint32_t id, int fd)
{
	/* Closing `fd` does not remove it while a dying child has it, too
	 * (broker_bury()). */
	(void)epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
	watched[id] = 0;
}

int broker_loop_wait(struct broker_event *events, int max, int timeout_ms)
{
	struct epoll_event e[64];
	int n = epoll_wait(epoll, e, max < 64 ? max : 64, timeout_ms);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++)
		events[i] = (struct broker_event){ e[i].data.u32, e[i].events };
	return n;
}
