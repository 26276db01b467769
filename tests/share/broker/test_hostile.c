/* SPDX-License-Identifier: MIT */
/*
 * Hostile clients of a broker: whatever they send, no other client notices
 *
 * Each attack comes over a bare socket, while an honest client is connected. After it the
 * honest client is served, and the broker has as many descriptors open as before.
 */
#include "tests/support/broker.h"

#include <cowshed-broker.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct cow_broker_message request(int operation)
{
	return (struct cow_broker_message){
		.magic = COW_BROKER_MAGIC,
		.version = COW_BROKER_VERSION,
		.operation = (uint16_t)operation,
	};
}

static ssize_t say(int socket, const void *data, size_t bytes, const int *fds,
                   size_t nfds, int flags)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(253 * sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)data, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, nfds * sizeof(int));
	}
	return sendmsg(socket, &msg, flags | MSG_NOSIGNAL);
}

/* The answer, or -ECONNRESET: it was closed. Descriptors are dropped. */
static int answer(int socket)
{
	struct cow_broker_message m;
	struct pollfd p = { .fd = socket, .events = POLLIN };
	ssize_t n;

	must(poll(&p, 1, 30000) == 1);
	n = recv(socket, &m, sizeof(m), 0);
	if (n <= 0)
		return -ECONNRESET;
	must(n == sizeof(m));
	must(m.magic == COW_BROKER_MAGIC);
	return m.result;
}

static int sealed_memfd(size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	must(fd >= 0);
	must(ftruncate(fd, (off_t)bytes) == 0);
	must(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

#define ALL (F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE)

struct scene {
	struct host host;
	struct cow_broker *honest;
	struct cow_storage *s;
	struct cow_broker_item item;
	long fds;
};

static void scene_begin(struct scene *t, const char *how)
{
	host_start(&t->host, how);
	t->honest = host_connect(&t->host);
	t->s = new_filled(PAGE, 0, 1);
	t->item = (struct cow_broker_item){ .mode = COW_SHARE_SEALED };
	ok(cow_broker_put(t->honest, t->s, &t->item));
	t->fds = host_fds(&t->host);
}

static bool as_before(void *arg)
{
	struct scene *t = arg;

	return host_fds(&t->host) == t->fds;
}

static void scene_end(struct scene *t)
{
	struct cow_storage *r;

	ok(cow_broker_get(t->honest, &t->item, &r, NULL));
	cow_storage_unref(r);
	ck_assert_int_eq(host_objects(t->honest), 1);
	ck_assert(wait_until(as_before, t, 20));
	cow_storage_unref(t->s);
	cow_broker_unref(t->honest);
	host_end(&t->host);
}

/* ---- Messages that are none --------------------------------------------------- */

START_TEST(messages_that_are_none)
{
	struct cow_broker_message m[2] = { request(COW_BROKER_HELLO) };
	size_t bytes = sizeof(m[0]), nfds = 0;
	int fds[253], socket, memfd = sealed_memfd(PAGE, ALL);
	struct scene t;

	for (int i = 0; i < 253; i++)
		fds[i] = memfd;
	switch (_i) {
	case 0: bytes = 1; break;
	case 1: bytes--; break;
	case 2: bytes++; break;
	case 3: bytes = 2 * sizeof(m[0]); break;
	case 4: m[0].magic++; break;
	case 5: m[0].version++; break;
	case 6: m[0].operation = COW_BROKER_OPERATIONS; break;
	case 7: m[0].operation = 0xffff; break;
	case 8: m[0].reserved = 1; break;
	case 9: nfds = 1; break; /* with what has none */
	case 10: nfds = 253; break;
	case 11: m[0].operation = COW_BROKER_PUT; nfds = 2; break;
	case 12: memset(m, 0xff, sizeof(m)); break;
	default: memset(m, 0, sizeof(m)); break;
	}
	scene_begin(&t, NULL);
	socket = host_dial(&t.host);
	ck_assert_int_eq(say(socket, m, bytes, fds, nfds, 0), (ssize_t)bytes);
	ck_assert_int_eq(answer(socket), -EBADMSG);
	ck_assert_int_eq(answer(socket), -ECONNRESET);
	close(socket);
	close(memfd);
	scene_end(&t);
}
END_TEST

/* A client that dies within a request, whose descriptor was there already. */
START_TEST(request_cut_behind_every_byte)
{
	struct cow_broker_message m = request(COW_BROKER_PUT);
	int memfd = sealed_memfd(PAGE, ALL), socket;
	struct scene t;

	m.item = host_item("cut", COW_SHARE_SEALED);
	m.item.bytes = PAGE;
	scene_begin(&t, NULL);
	for (size_t n = 1; n < sizeof(m); n++) {
		socket = host_dial(&t.host);
		ck_assert_int_eq(say(socket, &m, n, &memfd, 1, 0), (ssize_t)n);
		if (n % 2) {
			ck_assert_int_eq(answer(socket), -EBADMSG);
			ck_assert_int_eq(answer(socket), -ECONNRESET);
		}
		close(socket);
	}
	ck_assert_int_eq(host_objects(t.honest), 1);
	close(memfd);
	scene_end(&t);
}
END_TEST

/* ---- Storages that are none ------------------------------------------------------ */

/* Makes request number `i`, its descriptor, and a pipe that it may need. Returns the answer
 * that is due. */
static int make_none(int i, struct cow_broker_message *m, int *fd, int other[2])
{
	m->item.token = (struct cow_token){ 1, 2 };
	m->item.bytes = PAGE;
	m->item.mode = COW_SHARE_SEALED;
	if (i > 5)
		*fd = sealed_memfd(PAGE, ALL);
	switch (i) {
	case 0: break; /* no descriptor */
	case 1: must(pipe(other) == 0); *fd = dup(other[0]); break;
	case 2: *fd = open("/dev/zero", O_RDWR | O_CLOEXEC); break;
	case 3: *fd = sealed_memfd(PAGE, F_SEAL_GROW | F_SEAL_SHRINK); break;
	case 4: *fd = sealed_memfd(PAGE, F_SEAL_WRITE); break;
	case 5: *fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC); break;
	case 6: m->item.bytes = PAGE + 1; break;
	case 7: m->item.bytes = UINT64_MAX; break;
	case 8: m->offset = PAGE; break;
	case 9: m->offset = UINT64_MAX - 10; break;
	case 10: m->item.bytes = 0; break; /* and a descriptor */
	case 11: m->item.mode = 3; return -EINVAL;
	case 12: m->item.mode = UINT32_MAX; return -EINVAL;
	case 13: m->item.flags = 0x80; return -EINVAL;
	case 14: m->item.permissions = 07777; return -EINVAL;
	case 15: memset(m->item.name, 'x', sizeof(m->item.name)); return -EINVAL;
	case 16: strcpy(m->item.name, "../x"); return -EINVAL;
	case 17: strcpy(m->item.name, "\033[2J"); return -EINVAL;
	case 18: m->item.token = (struct cow_token){ 0, 0 }; return -EINVAL;
	default: return 0; /* sound, and dropped with its maker */
	}
	return -EBADMSG;
}

START_TEST(storages_that_are_none)
{
	struct cow_broker_message m = request(COW_BROKER_PUT);
	int fd = -1, other[2] = { -1, -1 }, wanted, socket;
	struct scene t;

	wanted = make_none(_i, &m, &fd, other);
	scene_begin(&t, NULL);
	if (_i == 20) { /* another's token, for something else */
		m.item.token = t.item.token;
		wanted = -EEXIST;
	}
	socket = host_dial(&t.host);
	ck_assert_int_eq(say(socket, &m, sizeof(m), &fd, fd >= 0, 0),
	                 (ssize_t)sizeof(m));
	ck_assert_int_eq(answer(socket), wanted);
	/* The connection is as good as before. */
	m = request(COW_BROKER_HELLO);
	say(socket, &m, sizeof(m), NULL, 0, 0);
	ck_assert_int_eq(answer(socket), 0);
	for (int i = 0; i < 2; i++)
		if (other[i] >= 0)
			close(other[i]);
	if (fd >= 0)
		close(fd);
	close(socket);
	ck_assert(wait_until(as_before, &t, 20));
	scene_end(&t);
}
END_TEST

/* ---- Slow ones, greedy ones, vanishing ones ----------------------------------------- */

START_TEST(who_does_not_read_waits_alone)
{
	struct cow_broker_message m = request(COW_BROKER_GET);
	struct scene t;
	struct cow_storage *r;
	long sent = 0, refused = 0;
	int socket;

	scene_begin(&t, NULL);
	m.item = t.item;
	socket = host_dial(&t.host);
	/* Until its queue is full and stays so while others are served. */
	while (refused < 50) {
		if (say(socket, &m, sizeof(m), NULL, 0, MSG_DONTWAIT) < 0) {
			ck_assert_int_eq(errno, EAGAIN);
			ok(cow_broker_get(t.honest, &t.item, &r, NULL));
			cow_storage_unref(r);
			refused++;
		} else {
			sent++;
			refused = 0;
		}
		ck_assert_int_lt(sent, 100000);
	}
	/* Then it reads, and every answer is there. */
	for (long i = 0; i < sent; i++) {
		int result = answer(socket);

		if (result != 0 && result != -ETOOMANYREFS)
			ck_abort_msg("answer %ld of %ld: %d", i, sent, result);
	}
	close(socket);
	scene_end(&t);
}
END_TEST

/* Asks for it, and reads nothing, until nothing more can be sent. */
static long ask_only(struct scene *t, int socket, const struct cow_broker_item *item)
{
	struct cow_broker_message m = request(COW_BROKER_GET);
	struct cow_storage *r;
	long sent = 0, refused = 0;

	m.item = *item;
	while (refused < 50) {
		if (say(socket, &m, sizeof(m), NULL, 0, MSG_DONTWAIT) > 0) {
			sent++;
			refused = 0;
			continue;
		}
		ck_assert_int_eq(errno, EAGAIN);
		ok(cow_broker_get(t->honest, &t->item, &r, NULL));
		cow_storage_unref(r);
		refused++;
	}
	return sent;
}

/* Descriptors that wait for this client are charged to the broker's user. */
START_TEST(who_does_not_read_lets_few_descriptors_wait)
{
	struct scene t;
	int socket, status, waiting = 0;

	scene_begin(&t, NULL);
	socket = host_dial(&t.host);
	ck_assert_int_gt(ask_only(&t, socket, &t.item), 10);
	ck_assert_int_eq(host_fds(&t.host), t.fds + 1); /* his connection */
	must(kill(t.host.pid, SIGSTOP) == 0);
	must(waitpid(t.host.pid, &status, WUNTRACED) == t.host.pid);
	ck_assert(WIFSTOPPED(status));
	while (recv(socket, &(struct cow_broker_message){ 0 },
	            sizeof(struct cow_broker_message), MSG_DONTWAIT) > 0)
		waiting++;
	must(kill(t.host.pid, SIGCONT) == 0);
	ck_assert_int_ge(waiting, 1);
	ck_assert_int_le(waiting, 2);
	close(socket);
	scene_end(&t);
}
END_TEST

/* Items that were dropped before this client reads are not held for it. */
START_TEST(who_does_not_read_finds_what_is_there_then)
{
	struct cow_broker_item item = host_item("more", COW_SHARE_SEALED);
	struct cow_broker_message m = request(COW_BROKER_GET);
	struct scene t;
	long sent, got = 0;
	int socket;

	scene_begin(&t, NULL);
	ok(cow_broker_put(t.honest, t.s, &item));
	socket = host_dial(&t.host);
	sent = ask_only(&t, socket, &item);
	ok(cow_broker_drop(t.honest, &item));
	ck_assert_int_eq(host_fds(&t.host), t.fds + 1);
	for (long i = 0; i < sent; i++) {
		int result = answer(socket);

		got += result == 0;
		ck_assert_int_eq(result, got == i + 1 ? 0 : -ENOENT);
	}
	ck_assert_int_ge(got, 1);
	ck_assert_int_le(got, 2);
	/* It is served as before. */
	m.item = t.item;
	for (int i = 0; i < 10; i++) {
		say(socket, &m, sizeof(m), NULL, 0, 0);
		ck_assert_int_eq(answer(socket), 0);
	}
	close(socket);
	scene_end(&t);
}
END_TEST

/* The broker waits for no client that does not read. */
START_TEST(who_does_not_read_keeps_nothing_from_others)
{
	struct cow_broker_item item = host_item("once", COW_SHARE_SEALED);
	struct cow_broker_message m = request(COW_BROKER_GET);
	struct cow_storage *r;
	struct scene t;
	int socket;

	scene_begin(&t, NULL);
	item.flags = COW_BROKER_ONCE;
	ok(cow_broker_put(t.honest, t.s, &item));
	socket = host_dial(&t.host);
	for (int i = 0; i < 3; i++) {
		m.item = i < 2 ? t.item : item;
		say(socket, &m, sizeof(m), NULL, 0, 0);
	}
	ok(cow_broker_get(t.honest, &item, &r, NULL));
	cow_storage_unref(r);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(answer(socket), i < 2 ? 0 : -ENOENT);
	close(socket);
	scene_end(&t);
}
END_TEST

START_TEST(who_asks_and_vanishes)
{
	struct cow_broker_message m = request(COW_BROKER_PUT);
	int fd = sealed_memfd(PAGE, ALL);
	struct scene t;

	scene_begin(&t, NULL);
	m.item.bytes = PAGE;
	m.item.mode = COW_SHARE_SEALED;
	for (int i = 0; i < 500; i++) {
		int socket = host_dial(&t.host);

		m.item.token.a = (uint64_t)i + 1;
		if (i % 3)
			say(socket, &m, sizeof(m), &fd, 1, 0);
		if (i % 3 == 2)
			say(socket, &m, 1, &fd, 1, 0);
		close(socket);
	}
	close(fd);
	ck_assert(wait_until(as_before, &t, 20));
	scene_end(&t);
}
END_TEST

START_TEST(who_wants_too_much)
{
	struct cow_broker_message m = request(COW_BROKER_PUT);
	int fd = sealed_memfd(PAGE, ALL), socket, r = 0;
	struct cow_broker_item item = { .mode = COW_SHARE_SEALED };
	struct scene t;
	long n;

	scene_begin(&t, "--max=20");
	m.item.bytes = PAGE;
	m.item.mode = COW_SHARE_SEALED;
	socket = host_dial(&t.host);
	for (n = 0; n < 100; n++) {
		m.item.token.a = (uint64_t)n + 1;
		say(socket, &m, sizeof(m), &fd, 1, 0);
		r = answer(socket);
		if (r < 0)
			break;
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_int_eq(n, 11); /* half of it, and one */
	ok(cow_broker_put(t.honest, t.s, &item));
	ok(cow_broker_drop(t.honest, &item));
	close(socket);
	close(fd);
	ck_assert(wait_until(as_before, &t, 20));
	scene_end(&t);
}
END_TEST

START_TEST(who_lets_it_wait_is_not_waited_for)
{
	struct cow_broker_options o = { .size = sizeof(o), .timeout_ms = 100 };
	struct cow_broker *b;
	struct scene t;

	scene_begin(&t, NULL);
	o.address = t.host.address;
	kill(t.host.pid, SIGSTOP);
	fails(-ETIMEDOUT, cow_broker_open(&o, &b));
	kill(t.host.pid, SIGCONT);
	ok(cow_broker_open(&o, &b));
	cow_broker_unref(b);
	scene_end(&t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker, attacked");
	TCase *tcase = add_case(suite, "hostile");

	tcase_add_loop_test(tcase, messages_that_are_none, 0, 14);
	tcase_add_test(tcase, request_cut_behind_every_byte);
	tcase_add_loop_test(tcase, storages_that_are_none, 0, 21);
	tcase_add_test(tcase, who_does_not_read_waits_alone);
	tcase_add_test(tcase, who_does_not_read_lets_few_descriptors_wait);
	tcase_add_test(tcase, who_does_not_read_finds_what_is_there_then);
	tcase_add_test(tcase, who_does_not_read_keeps_nothing_from_others);
	tcase_add_test(tcase, who_asks_and_vanishes);
	tcase_add_test(tcase, who_wants_too_much);
	tcase_add_test(tcase, who_lets_it_wait_is_not_waited_for);
	return run_suite(suite);
}
