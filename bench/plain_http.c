/* SPDX-License-Identifier: MIT */
/*
 * Clients of a web server on a Unix socket
 *
 *      plain_http -s SOCKET [-c CLIENTS] [-t SECONDS] [-w SECONDS]
 *
 * CLIENTS threads send one request after another, each over a connection of its own, as
 * a proxy does that keeps no connections. Every answer must have status 200 and the body
 * "ok". The requests of the first -w seconds don't count. One line:
 *
 *      requests=.. request_us=.. p50_us=.. p99_us=.. worst_us=..
 *
 * request_us is the time of all clients together for one request: a million divided by
 * the requests per second. The others are the time that a client waited for one.
 */
#include "bench/peer.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CLIENTS_MAX = 64, SAMPLES = 1 << 18 };

static const char *socket_path;
static atomic_bool counting, over;

struct client {
	pthread_t thread;
	double *us;
	int n;
};

/* One request; the server closes the connection after its answer. */
static void ask(void)
{
	static const char request[] = "GET / HTTP/1.0\r\nHost: bench\r\n\r\n";
	char answer[4096];
	size_t n = 0;
	ssize_t got;
	int fd = connected(socket_path);

	if (write(fd, request, sizeof(request) - 1) != sizeof(request) - 1)
		die("a request was not taken: %s", strerror(errno));
	while ((got = read(fd, answer + n, sizeof(answer) - 1 - n)) > 0)
		n += got;
	if (got < 0)
		die("an answer was lost: %s", strerror(errno));
	answer[n] = 0;
	if (n < 16 || strncmp(answer + 8, " 200 ", 5) ||
	    strcmp(answer + n - 6, "\r\n\r\nok"))
		die("a wrong answer: %s", answer);
	close(fd);
}

static void *client(void *arg)
{
	struct client *c = arg;

	while (!atomic_load(&over)) {
		double t0 = now_ns();
		bool counts = atomic_load(&counting);

		ask();
		if (!counts)
			continue;
		if (c->n == SAMPLES)
			die("too long a run: no room for samples");
		c->us[c->n++] = us_since(t0);
	}
	return NULL;
}

static void report_all(struct client *c, int clients, double elapsed_us)
{
	int n = 0;
	double *all;

	for (int i = 0; i < clients; i++)
		n += c[i].n;
	all = calloc(n + 1, sizeof(*all));
	if (!all || !n)
		die("no request was answered");
	n = 0;
	for (int i = 0; i < clients; i++) {
		memcpy(all + n, c[i].us, c[i].n * sizeof(*all));
		n += c[i].n;
	}
	printf("requests=%d request_us=%.2f p50_us=%.1f p99_us=%.1f worst_us=%.1f\n", n,
	       elapsed_us / n, quantile(all, n, 0.5), quantile(all, n, 0.99), quantile(all, n, 1));
	free(all);
}

int main(int argc, char **argv)
{
	static struct client c[CLIENTS_MAX];
	double seconds = 4, warm = 1, t0;
	int clients = 8;

	OPTIONS({ 's', .text = &socket_path }, { 'c', .count = &clients },
	        { 't', .number = &seconds }, { 'w', .number = &warm });
	if (!socket_path || clients < 1 || clients > CLIENTS_MAX)
		die("usage: see the head of bench/plain_http.c");
	for (int i = 0; i < clients; i++) {
		c[i].us = calloc(SAMPLES, sizeof(*c[i].us));
		if (!c[i].us || pthread_create(&c[i].thread, NULL, client, &c[i]))
			die("no memory or no threads");
	}
	sleep_ms((int)(warm * 1e3));
	t0 = now_ns();
	atomic_store(&counting, true);
	sleep_ms((int)(seconds * 1e3));
	atomic_store(&over, true);
	for (int i = 0; i < clients; i++)
		pthread_join(c[i].thread, NULL);
	report_all(c, clients, us_since(t0));
	return 0;
}
