/* SPDX-License-Identifier: MIT */
/*
 * A daemon that forks a child for each connection, which gives up its privileges
 *
 *      plain_border_daemon [-b BLOCK] [-t TOTAL] [-n CONNECTIONS] [-s SECONDS] [-H]
 *
 * The daemon fills TOTAL bytes. For each connection to its socket it forks a child, which
 * drops, reads a request, reads 256 scattered pages, answers and exits. The daemon
 * writes 64 scattered pages, and waits for children that have ended. A client, which
 * was forked before there was any memory, makes one connection after another.
 *
 * It prints the client's median and 99th percentile, from connect() to the end of the
 * connection; the median of fork(); and the memory of all processes after the last
 * connection (end) and SECONDS later (settled).
 */
#include "bench/border.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { WRITES = 64, PAGES = 256 };
static int connections = 1000;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static socklen_t address_len;

static int request(void)
{
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	char byte = 'x';

	if (s < 0 || connect(s, (void *)&address, address_len) ||
	    write(s, "", 1) != 1 || read(s, &byte, 1) != 1 || byte != 'k')
		die("a request failed: %s", strerror(errno));
	/* The end of the connection is the end of the child. */
	if (read(s, &byte, 1) != 0)
		die("a connection did not end");
	return close(s);
}

static void client_start(double *times, int go)
{
	pid_t pid = fork();
	char byte;

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(go, &byte, 1) != 1)
		_exit(1);
	for (int i = 0; i < connections; i++) {
		double t0 = now_ns();

		request();
		times[i] = us_since(t0);
	}
	_exit(0);
}

/* Other pages for each connection: steps of a prime number of pages. */
static size_t scattered(int connection, int i, int per)
{
	return ((size_t)connection * (size_t)per + (size_t)i) * 7919;
}

static void serve(int s, int n)
{
	char byte;

	drop();
	if (read(s, &byte, 1) != 1)
		_exit(1);
	for (int i = 0; i < PAGES; i++)
		if (*page_at(scattered(n, i, PAGES)) == 0)
			_exit(121);
	_exit(write(s, "k", 1) != 1);
}

static double one_connection(int listener, int n)
{
	int s = accept(listener, NULL, NULL), status;
	double t0 = now_ns(), us;
	pid_t pid = fork();

	if (pid == 0)
		serve(s, n);
	us = us_since(t0);
	if (s < 0 || pid < 0)
		die("connection %d: %s", n, strerror(errno));
	close(s);
	for (int i = 0; i < WRITES; i++)
		*page_at(scattered(n, i, WRITES)) = (char)(1 + n % 100);
	while (waitpid(-1, &status, WNOHANG) > 0)
		if (status)
			die("a child failed (status %x)", status);
	return us;
}

static int listen_here(void)
{
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	/* A name without a file. */
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
	         "cowshed-bench-border-%d", (int)getpid());
	address_len = (socklen_t)(sizeof(sa_family_t) + 1 +
	                          strlen(address.sun_path + 1));
	if (s < 0 || bind(s, (void *)&address, address_len) || listen(s, 64))
		die("no socket: %s", strerror(errno));
	return s;
}

static void run(double *times, double *forks)
{
	int listener = listen_here(), go[2], status;
	double end, settled;

	if (pipe(go))
		die("pipe");
	client_start(times, go[0]);
	blocks_fill(1);
	if (write(go[1], "", 1) != 1)
		die("the client ended early");
	for (int i = 0; i < connections; i++)
		forks[i] = one_connection(listener, i);
	while (waitpid(-1, &status, 0) > 0)
		if (status)
			die("a child failed (status %x)", status);
	end = charge_mib();
	sleep_ms((long)(seconds * 1000));
	settled = charge_mib();
	printf("p50_us=%.2f p99_us=%.2f fork_us=%.2f end_mib=%.2f settled_mib=%.2f",
	       quantile(times, (size_t)connections, 0.5),
	       quantile(times, (size_t)connections, 0.99),
	       quantile(forks, (size_t)connections, 0.5), end, settled);
	print_drop();
}

int main(int argc, char **argv)
{
	double *times, *forks;

	options(argc, argv, &connections);
	if (connections < 1)
		die("bad number");
	times = mmap(NULL, sizeof(double) * (size_t)connections, PROT_READ | PROT_WRITE,
	             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	forks = calloc((size_t)connections, sizeof(*forks));
	if (times == MAP_FAILED || !forks)
		die("no memory");
	run(times, forks);
	return 0;
}
