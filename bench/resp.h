/* SPDX-License-Identifier: MIT */
/*
 * A connection to redis-server over a Unix socket
 *
 * Requests are collected in a buffer and leave in one write; replies are read in the
 * order of their requests. All calls block, and end the program if the server is gone or
 * answers with an error.
 */
#ifndef BENCH_RESP_H
#define BENCH_RESP_H

#include "bench/peer.h"

struct resp {
	int fd;
	size_t out;         /* bytes that wait to be written */
	size_t begin, end;  /* what was read and is not taken yet */
	char requests[128 << 10];
	char replies[256 << 10];
};

static inline struct resp *resp_open(const char *path)
{
	struct resp *r = calloc(1, sizeof(*r));

	if (!r)
		die("no memory");
	r->fd = connected(path);
	return r;
}

static inline void resp_close(struct resp *r)
{
	close(r->fd);
	free(r);
}

/* Adds bytes to the requests. */
static inline void resp_put(struct resp *r, const void *bytes, size_t n)
{
	if (n > sizeof(r->requests) - r->out)
		die("too many requests in one write");
	memcpy(r->requests + r->out, bytes, n);
	r->out += n;
}

/* Adds one argument of a command. */
static inline void resp_word(struct resp *r, const void *word, size_t n)
{
	char head[24];

	resp_put(r, head, sprintf(head, "$%zu\r\n", n));
	resp_put(r, word, n);
	resp_put(r, "\r\n", 2);
}

static inline void resp_command(struct resp *r, int words)
{
	char head[24];

	resp_put(r, head, sprintf(head, "*%d\r\n", words));
}

static inline void resp_send(struct resp *r)
{
	for (size_t at = 0; at < r->out;) {
		ssize_t n = write(r->fd, r->requests + at, r->out - at);

		if (n <= 0)
			die("the server takes no requests: %s", strerror(errno));
		at += n;
	}
	r->out = 0;
}

/* Reads until `n` bytes wait. */
static inline void resp_await(struct resp *r, size_t n)
{
	if (n > sizeof(r->replies))
		die("a reply is too long");
	if (r->begin + n > sizeof(r->replies)) {
		memmove(r->replies, r->replies + r->begin, r->end - r->begin);
		r->end -= r->begin;
		r->begin = 0;
	}
	while (r->end - r->begin < n) {
		ssize_t got = read(r->fd, r->replies + r->end,
		                   sizeof(r->replies) - r->end);

		if (got <= 0)
			die("the server is gone");
		r->end += got;
	}
}

/* The next reply, a status or a string: its bytes, good until the next call. */
static inline const char *resp_take(struct resp *r, size_t *length)
{
	const char *reply, *line_end = NULL;
	size_t line, n;

	for (n = 1; !line_end; n = r->end - r->begin + 1) {
		resp_await(r, n);
		line_end = memchr(r->replies + r->begin, '\n',
		                  r->end - r->begin);
	}
	reply = r->replies + r->begin;
	line = line_end + 1 - reply;
	if (*reply == '-' || (*reply == '$' && reply[1] == '-'))
		die("the server answered: %.*s", (int)line, reply);
	if (*reply != '$') {
		*length = line - 3;
		r->begin += line;
		return reply + 1;
	}
	n = strtoul(reply + 1, NULL, 10);
	resp_await(r, line + n + 2);
	reply = r->replies + r->begin + line;
	r->begin += line + n + 2;
	*length = n;
	return reply;
}

/* One command of one or two words, and its reply. */
static inline const char *resp_ask(struct resp *r, const char *command,
                                   const char *argument, size_t *length)
{
	resp_command(r, argument ? 2 : 1);
	resp_word(r, command, strlen(command));
	if (argument)
		resp_word(r, argument, strlen(argument));
	resp_send(r);
	return resp_take(r, length);
}

#endif
