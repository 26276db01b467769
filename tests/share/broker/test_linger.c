/* SPDX-License-Identifier: MIT */
/*
 * A descriptor whose close waits in the kernel does not stop a broker
 *
 * A client leaves the broker the last descriptor of a TCP connection that lingers for hours.
 * An honest client is still served.
 */
#include "tests/support/broker.h"
#include "tests/support/hostile.h"
#include "tests/support/linger.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

struct fds {
	struct host *host;
	long count;
};

static bool as_before(void *arg)
{
	struct fds *f = arg;

	return host_fds(f->host) == f->count;
}

static int answer(int socket)
{
	struct pollfd p = { .fd = socket, .events = POLLIN };
	struct cow_broker_message m;

	must(poll(&p, 1, 30000) == 1);
	must(recv(socket, &m, sizeof(m), 0) == (ssize_t)sizeof(m));
	return m.result;
}

/* Sends the broker a request with descriptors of the connection. `ends`: a pair of sockets, if
 * `how` needs one. */
static void put_lingering(int socket, int connection, int how, int ends[2])
{
	struct cow_broker_message m = { .magic = COW_BROKER_MAGIC,
		                        .version = COW_BROKER_VERSION,
		                        .operation = COW_BROKER_PUT };
	int fds[2] = { connection, connection };

	m.item = host_item("lingers", COW_SHARE_SEALED);
	m.item.bytes = PAGE;
	if (how == 1) { /* behind a malformed request, after which the broker hangs up */
		must(put(socket, "", 1, NULL, 0, 0) == 1);
		must(put(socket, "", 0, NULL, 0, 0) == 0);
	}
	if (how == 2) { /* in the queue of what is sent */
		must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
		must(put(ends[0], "", 1, fds, 1, 0) == 1);
		fds[0] = ends[1];
	}
	must(put(socket, &m, sizeof(m), fds, how == 3 ? 2 : 1, 0) > 0);
}

/* The broker gets the connection's last descriptor, and closing it waits for hours. */
START_TEST(sockets_that_linger)
{
	struct cow_broker *honest;
	struct cow_storage *s;
	struct cow_broker_item item = host_item("honest", COW_SHARE_SEALED);
	int socket, ends[2] = { -1, -1 }, status;
	long fds_before;
	struct lingering l;
	struct host host;

	must(linger_make(&l));
	host_start(&host, NULL);
	honest = host_connect(&host);
	s = new_filled(PAGE, 0, 1);
	ok(cow_broker_put(honest, s, &item));
	cow_storage_unref(s);
	fds_before = host_fds(&host);
	socket = host_dial(&host);
	must(kill(host.pid, SIGSTOP) == 0);
	must(waitpid(host.pid, &status, WUNTRACED) == host.pid);
	put_lingering(socket, l.fd, _i, ends);
	linger_leave(&l);
	for (int i = 0; i < 2; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	if (_i == 4)
		close(socket);
	must(kill(host.pid, SIGCONT) == 0);
	if (_i != 4) {
		ck_assert_int_eq(answer(socket), -EBADMSG);
		close(socket);
	}
	ok(cow_broker_get(honest, &item, &s, NULL));
	cow_storage_unref(s);
	ck_assert_int_eq(host_objects(honest), 1);
	ck_assert(wait_until(as_before, (struct fds[]){ { &host, fds_before } }, 20));
	cow_broker_unref(honest);
	host_end(&host);
	linger_end(&l);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker, lingering");
	TCase *tcase = add_case(suite, "linger");

	if (linger_can())
		tcase_add_loop_test(tcase, sockets_that_linger, 0, 5);
	else
		puts("skip sockets_that_linger no network of this machine");
	return run_suite(suite);
}
