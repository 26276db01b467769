/* SPDX-License-Identifier: MIT */
/*
 * Pages and files that a stranger kept by other means than mappings and descriptors
 *
 * Pages in a pipe, pages that a socket is to send, and handles (O_PATH) that open nothing yet
 * outlive every mapping of a file.
 */
#ifndef COWSHED_TESTS_BORDER_LENT_H
#define COWSHED_TESTS_BORDER_LENT_H

#include "border_attacks.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* ---- Pages in a pipe ----------------------------------------------------- */

static int drain[2];

/* The first pages of the block whose pages will have a key. */
static struct iovec to_lend(void)
{
	return (struct iovec){ .iov_base = blocks[gone < 0 ? 0 : gone].p,
		               .iov_len = 16 * PAGE };
}

static void lend(void)
{
	struct iovec v = to_lend();

	check(pipe(drain) == 0);
	(void)!vmsplice(drain[1], &v, 1, 0);
}

static void lend_late(void)
{
	struct iovec v = to_lend();

	check(pipe(drain) == 0);
	RAW4(SYS_vmsplice, drain[1], &v, 1, 0);
}

static long lent_at = -1; /* where these pages are in their file */

static void region_lent(const struct region *r)
{
	uintptr_t p = (uintptr_t)to_lend().iov_base;

	if (p >= r->start && p < r->end)
		lent_at = (long)(r->offset + (p - r->start));
}

static void note_lent(void) { each_region(region_lent); }

static void fd_splice(int fd)
{
	long at = lent_at;

	if (at >= 0 && fd_on_board(fd))
		raw(SYS_splice, fd, (long)&at, drain[1], 0, 16 * PAGE, 0x2 /* NONBLOCK */);
}

static void splice_fds(void)
{
	check(pipe(drain) == 0);
	each_fd(fd_splice);
}

static void look_at_pipe(void)
{
	long n;

	RAW3(SYS_fcntl, drain[0], F_SETFL, O_NONBLOCK);
	while ((n = RAW3(SYS_read, drain[0], bounce, sizeof(bounce))) > 0)
		if (has_key(bounce, (size_t)n)) {
			say("leak pages in a pipe show the victim's bytes");
			return;
		}
}

static void region_unmap(const struct region *r) { RAW3(SYS_munmap, r->start, r->end - r->start, 0); }

/* Nothing is left of the victim's but the pages in the pipe. */
static void unmap_all(void)
{
	lend_late();
	each_fd(fd_close);
	each_region(region_unmap);
	for (int i = 0; i < blocks_count; i++)
		blocks[i].p = NULL;
}

static void becomes_another(void)
{
	char number[4][16];

	lend_late();
	snprintf(number[0], 16, "%d", play.verdict);
	snprintf(number[1], 16, "%d", play.to_stranger[0]);
	snprintf(number[2], 16, "%d", play.to_victim[1]);
	snprintf(number[3], 16, "%d", drain[0]);
	execl("/proc/self/exe", "border", "pipe", number[0], number[1], number[2], number[3],
	      (char *)NULL);
	_exit(1);
}

/* ---- Pages that a socket is to send --------------------------------------- */

enum { FILLER = 256 * 1024, QUEUE = 4 * 1024 * 1024 };

static int sender, receiver;

static void no_socket(const char *what)
{
	say("skip %s: %s", what, strerror(errno));
	leave();
}

/* A connection whose receiver takes next to nothing. So what is sent later waits. */
static void connect_slowly(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int on = 1, little = 1, much = QUEUE, listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t n = sizeof(at);

	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)) ||
	    bind(listener, (struct sockaddr *)&at, n) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &n))
		no_socket("no listener");
	sender = socket(AF_INET, SOCK_STREAM, 0);
	if (setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &much, sizeof(much)) ||
	    setsockopt(sender, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) ||
	    connect(sender, (struct sockaddr *)&at, n))
		no_socket("no socket that sends pages");
	receiver = accept(listener, NULL, NULL);
	check(receiver >= 0);
	close(listener);
	check(fcntl(receiver, F_SETFL, O_NONBLOCK) == 0);
	for (long sent = 0; sent < FILLER; sent += PAGE)
		if (send(sender, bounce, PAGE, MSG_DONTWAIT) != (ssize_t)PAGE)
			no_socket("the queue is too short");
}

/* The kernel keeps the pages, and sends what they hold then. */
static void send_pages(void)
{
	struct iovec v = to_lend();

	raw(SYS_sendto, sender, (long)v.iov_base, (long)v.iov_len, MSG_ZEROCOPY | MSG_DONTWAIT,
	    0, 0);
}

static void connect_and_send(void)
{
	connect_slowly();
	send_pages();
}

static void look_at_socket(void)
{
	struct pollfd wait = { .fd = receiver, .events = POLLIN };
	size_t all = 0, most = FILLER + 16 * PAGE;
	long n;

	while (all < most && poll(&wait, 1, 500) == 1) {
		n = RAW3(SYS_read, receiver, bounce + all, most - all);
		if (n <= 0)
			break;
		all += (size_t)n;
	}
	if (memmem(bounce, all, key(), key_bytes()))
		say("leak pages in a socket's queue show the victim's bytes");
}

/* ---- Handles that open nothing yet ---------------------------------------- */

static int handles[256], handles_count;

static void keep_handle(const char *path)
{
	long fd = RAW4(SYS_openat, play.proc, path, O_PATH, 0);

	if (fd >= 0 && handles_count < (int)COUNT(handles))
		handles[handles_count++] = (int)fd;
}

static void fd_handle(int fd)
{
	char path[32];

	if (!fd_on_board(fd))
		return;
	snprintf(path, sizeof(path), "self/fd/%d", fd);
	keep_handle(path);
}

static void region_handle(const struct region *r)
{
	char path[64];

	if (!on_board(r->dev, r->ino))
		return;
	snprintf(path, sizeof(path), "self/map_files/%lx-%lx", (unsigned long)r->start,
	         (unsigned long)r->end);
	keep_handle(path);
}

static void keep_handles(void)
{
	ready();
	each_fd(fd_handle);
	each_region(region_handle);
}

static void open_handles(int flags, void (*piece)(int, long, long))
{
	char path[32];
	long fd;

	for (int i = 0; i < handles_count; i++) {
		snprintf(path, sizeof(path), "self/fd/%d", handles[i]);
		fd = RAW4(SYS_openat, play.proc, path, flags, 0);
		if (fd < 0)
			continue;
		each_piece((int)fd, piece);
		RAW3(SYS_close, fd, 0, 0);
	}
}

static void handles_read(void) { open_handles(O_RDONLY, piece_read); }
static void handles_write(void) { open_handles(O_RDWR, piece_write); }

#endif
