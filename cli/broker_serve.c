/* SPDX-License-Identifier: MIT */
/*
 * Clients of the broker, and what they ask
 *
 * The broker reads a request when a socket has one, and answers it at once. If the
 * answer does not fit into the socket, the broker keeps it, and reads the client's
 * next request after it is sent. A client that sends anything else than a request
 * gets an error, and is disconnected.
 *
 * A descriptor that was sent and not received counts towards a limit of our user, for
 * all clients together. So a socket holds only a few answers, and the broker sends a
 * descriptor when the last one was read: at most two are in flight to a client. If a
 * GET has to wait, the broker keeps the request and not the answer. It keeps no
 * descriptor for it, and answers with what the shelf has when the client can read.
 */
#include "cli/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LISTENER, SIGNALS, CLIENTS };

#define FDS_MOST 253 /* in one message: the kernel's limit */

struct broker_client {
	int fd; /* -1: there is none */
	bool waits;       /* the reply did not fit yet */
	bool ends;        /* disconnect after the reply */
	bool gets;        /* a GET waits: reply.item is the item it asks for */
	bool given;       /* a descriptor was sent, and may be unread */
	struct broker_holder holder;
	struct cow_broker_message reply;
};

static const struct broker_service *service;
static struct broker_client *clients;
static uint32_t used, alive, *spare;
static uint32_t nspare;
static int reserve = -1; /* closed to get a number, to refuse a client */

/* 0, -EAGAIN, -errno. */
static int say(int fd, const struct cow_broker_message *m, int with)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)m, sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t r;

	if (with >= 0) {
		memset(&control, 0, sizeof(control));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &with, sizeof(with));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control.room);
	}
	do
		r = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

/* Has the client read all answers but one? If not there is no POLLOUT. */
static bool is_read(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	return poll(&p, 1, 0) != 0;
}

/* Sends the reply, or keeps it. False: disconnect the client. */
static bool answer(struct broker_client *c, int with)
{
	int r = -EAGAIN;

	if (with < 0 || !c->given || is_read(c->fd))
		r = say(c->fd, &c->reply, with);
	if (r == 0 && with >= 0)
		c->given = true;
	if (r == -ETOOMANYREFS) {
		/* Many descriptors are unread, of any clients: that passes. */
		c->reply.result = r;
		r = say(c->fd, &c->reply, -1);
	}
	if (r == -EAGAIN || r == -ENOBUFS || r == -ENOMEM) {
		c->waits = true;
		return true;
	}
	return r == 0 && !c->ends;
}

/* ---- Requests ------------------------------------------------------------------- */

/* Reads a message and the descriptor that came with it, or -1. 0: the connection
 * has ended, or the message is empty. With SO_PASSCRED *ret_some tells which;
 * ret_some may be NULL. */
static ssize_t hear(int fd, struct cow_broker_message *m, int *ret_fd,
                    bool *ret_some)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(FDS_MOST * sizeof(int)) +
		          CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec iov = { m, sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
		              .msg_control = &control,
		              .msg_controllen = sizeof(control) };
	int all[FDS_MOST];
	size_t n = 0;
	ssize_t r;

	do
		r = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL;
	     c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		/* The kernel makes one of these, of at most FDS_MOST. */
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(all, CMSG_DATA(c), n * sizeof(int));
	}
	if (n > 0) {
		*ret_fd = all[0];
		broker_bury(all + 1, n - 1);
	}
	if (ret_some != NULL)
		*ret_some = r > 0 || msg.msg_controllen > 0;
	if (msg.msg_flags & MSG_CTRUNC)
		return -EMFILE; /* descriptors are lost; their sender is told */
	if (n > 1 || (msg.msg_flags & MSG_TRUNC))
		return -EBADMSG;
	return r;
}

/* Takes unread descriptors out before the close, which would close them, too. */
static void hang_up(int fd)
{
	struct cow_broker_message m;
	int one = 1;
	bool some = false;

	(void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	(void)shutdown(fd, SHUT_RD);
	do {
		int sent = -1;
		ssize_t r = hear(fd, &m, &sent, &some);

		/* ECONNRESET: the client went without reading. It comes once. */
		some = r == -ECONNRESET || r == -EMFILE || r == -EBADMSG ||
		       (r >= 0 && some);
		if (sent >= 0)
			broker_bury(&sent, 1);
	} while (some);
	close(fd);
}

/* Answers, or keeps the request. False: disconnect the client. */
static bool get(struct broker_client *c, const struct cow_broker_item *item)
{
	const struct cow_broker_item asked = *item;
	struct broker_object *o = NULL;
	int r = broker_shelf_find(&c->holder, &asked, &o);
	bool sent;

	c->reply.item = o != NULL ? o->item : (struct cow_broker_item){ .uid = 0 };
	c->reply.offset = o != NULL ? o->offset : 0;
	c->reply.result = r;
	sent = answer(c, o != NULL ? o->fd : -1);
	c->gets = c->waits;
	if (c->gets)
		c->reply.item = asked;
	/* For one client. If it could not be answered it may ask again. */
	else if (o != NULL && (o->item.flags & COW_BROKER_ONCE) &&
	         c->reply.result == 0 && sent)
		broker_shelf_remove(o);
	return sent;
}

static int do_list(struct broker_client *c, const struct cow_broker_message *m)
{
	uint64_t cursor = m->offset;
	struct broker_object *o = broker_shelf_next(&c->holder, &cursor);

	c->reply.offset = cursor;
	if (o == NULL)
		return 0;
	c->reply.item = o->item;
	if (!broker_shelf_holds(&c->holder, o))
		c->reply.item.token = (struct cow_token){ 0, 0 };
	return 1;
}

static bool is_request(const struct cow_broker_message *m, ssize_t bytes,
                       int fd)
{
	return bytes == sizeof(*m) && m->magic == COW_BROKER_MAGIC &&
	       m->version == COW_BROKER_VERSION && m->reserved == 0 &&
	       m->operation < COW_BROKER_OPERATIONS &&
	       (fd < 0 || m->operation == COW_BROKER_PUT);
}

/* Any request but GET. Returns the result for the client. *ret_kept: the shelf has
 * taken `fd`. */
static int perform(struct broker_client *c, const struct cow_broker_message *m,
                   int fd, bool *ret_kept)
{
	int r;

	switch (m->operation) {
	case COW_BROKER_PUT:
		r = broker_shelf_put(&c->holder, m, fd);
		*ret_kept = r == 0;
		if (r != -EALREADY)
			return r;
		c->reply.item = m->item;
		return -EEXIST;
	case COW_BROKER_DROP:
		return broker_shelf_drop(&c->holder, &m->item);
	case COW_BROKER_LIST:
		return do_list(c, m);
	default:
		return 0;
	}
}

/* False: disconnect the client. */
static bool serve_message(struct broker_client *c)
{
	struct cow_broker_message m;
	int fd = -1, r;
	ssize_t n = hear(c->fd, &m, &fd, NULL);
	bool kept = false;

	if (n == -EAGAIN)
		return true;
	if (n == 0 || (n < 0 && n != -EMFILE && n != -EBADMSG)) {
		if (fd >= 0)
			broker_bury(&fd, 1);
		return false;
	}
	c->reply = (struct cow_broker_message){
		.magic = COW_BROKER_MAGIC,
		.version = COW_BROKER_VERSION,
	};
	if (n == -EMFILE) {
		r = -EMFILE;
	} else if (!is_request(&m, n, fd)) {
		r = -EBADMSG;
		c->ends = true;
	} else {
		c->reply.operation = m.operation;
		if (m.operation == COW_BROKER_GET)
			return get(c, &m.item);
		r = perform(c, &m, fd, &kept);
	}
	if (fd >= 0 && !kept)
		broker_bury(&fd, 1);
	c->reply.result = r;
	return answer(c, -1);
}

/* ---- Clients ----------------------------------------------------------------------- */

static void disconnect(uint32_t i)
{
	struct broker_client *c = &clients[i];

	broker_loop_forget(CLIENTS + i, c->fd);
	hang_up(c->fd);
	c->fd = -1;
	broker_shelf_leave(&c->holder);
	broker_user_give(c->holder.user, BROKER_CLIENT);
	spare[nspare++] = i;
	alive--;
}

static void welcome(int fd)
{
	struct cow_broker_message no = { .magic = COW_BROKER_MAGIC,
		                         .version = COW_BROKER_VERSION };
	struct broker_user *user = NULL;
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	int least = 1; /* the kernel rounds it up: room for a few messages */
	uint32_t i;

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		no.result = -errno;
	else if (!service->others && peer.uid != geteuid() && peer.uid != 0)
		no.result = -EPERM;
	else
		no.result = broker_user_enter(peer.uid, &user);
	if (no.result < 0) {
		(void)say(fd, &no, -1);
		hang_up(fd);
		return;
	}
	i = nspare > 0 ? spare[--nspare] : used++;
	clients[i] = (struct broker_client){
		.fd = fd,
		.holder = { .uid = peer.uid, .user = user },
	};
	alive++;
	if (broker_loop_arm(CLIENTS + i, fd, POLLIN) < 0)
		disconnect(i);
}

static void doorbell(void)
{
	for (int i = 0; i < 16; i++) {
		int fd = accept4(service->listener, NULL, NULL,
		                 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			welcome(fd);
		} else if (errno == EMFILE || errno == ENFILE) {
			/* Else the listener would stay readable for ever. */
			close(reserve);
			fd = accept4(service->listener, NULL, NULL,
			             SOCK_CLOEXEC);
			/* No number is left to take descriptors out of it. */
			if (fd >= 0)
				broker_bury(&fd, 1);
			reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
			return;
		} else if (errno != ECONNABORTED && errno != EINTR) {
			return;
		}
	}
}

static void serve_turn(uint32_t i)
{
	struct broker_client *c = &clients[i];
	bool stays;

	if (c->waits) {
		c->waits = false;
		stays = c->gets ? get(c, &c->reply.item) : answer(c, -1);
	} else {
		stays = serve_message(c);
	}
	if (!stays || broker_loop_arm(CLIENTS + i, c->fd,
	                              c->waits ? POLLOUT : POLLIN) < 0)
		disconnect(i);
}

static int signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int broker_open(const struct broker_service *s)
{
	uint32_t most = s->limits.of[BROKER_CLIENT].all;
	int signal_fd = signals(), r;

	(void)signal(SIGCHLD, SIG_IGN); /* broker_bury() */
	service = s;
	clients = calloc(most, sizeof(*clients));
	spare = calloc(most, sizeof(*spare));
	reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (clients == NULL || spare == NULL || signal_fd < 0 || reserve < 0)
		return signal_fd < 0 || reserve < 0 ? -errno : -ENOMEM;
	r = broker_users_open(s->limits.of, s->subordinates);
	if (r == 0)
		r = broker_shelf_open(&s->limits);
	if (r == 0)
		r = broker_loop_open(CLIENTS + most);
	if (r == 0)
		r = broker_loop_arm(SIGNALS, signal_fd, POLLIN);
	if (r == 0)
		r = broker_loop_arm(LISTENER, s->listener, POLLIN);
	return r;
}

int broker_round(int timeout_ms)
{
	struct broker_event events[64];
	int n = broker_loop_wait(events, 64, timeout_ms);

	for (int i = 0; i < n; i++) {
		if (events[i].id == SIGNALS)
			return -ECANCELED;
		if (events[i].id >= CLIENTS)
			serve_turn(events[i].id - CLIENTS);
		else
			doorbell();
	}
	return n;
}

int broker_serve(const struct broker_service *s, void (*started)(void))
{
	int r = broker_open(s);

	if (r < 0)
		return r;
	started();
	for (;;) {
		bool idle = alive == 0 && broker_shelf_count() == 0;

		r = broker_round(idle ? s->idle_ms : -1);
		if (r == -ECANCELED || (r == 0 && idle && s->idle_ms >= 0))
			return 0;
		if (r < 0)
			return r;
	}
}
