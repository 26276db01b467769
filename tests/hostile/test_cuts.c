/* SPDX-License-Identifier: MIT */
/*
 * A peer that dies in the middle of a message
 *
 * Messages of every kind, as the library makes them, are cut behind each of their bytes, with
 * all, some and none of their descriptors. A broker's answers are cut, too. Messages from
 * before arrive, the cut one is an error, no descriptor stays, and the whole message is good
 * afterwards.
 */
#include "memfd/socket.h"
#include "tests/support/hostile.h"

#include <cowshed-broker.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

enum { BYTES = 20000, SEED = 3 };

/* ---- Messages --------------------------------------------------------------------- */

struct message {
	struct cow_group *group;
	struct cow_storage *storage;
	enum cow_share_mode mode;
	uint64_t bytes[1024]; /* as it is laid out */
	size_t count;
	int fds[RAW_FDS];
	unsigned nfds;
};

/* Of one storage and a note, caught on its way. */
static void message_make(struct message *m, int kind)
{
	struct cow_channel *c;
	struct cow_parcel p;
	int fd[2];
	long r;

	memset(m, 0, sizeof(*m));
	m->mode = (enum cow_share_mode)(kind % 3);
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) == 0);
	if (kind >= 3)
		ok(cow_group_new(&m->group));
	m->storage = new_filled(BYTES, 0, SEED);
	p = (struct cow_parcel){ .storage = m->storage, .length = BYTES,
		                 .mode = m->mode };
	ok(cow_channel_new(fd[0], m->group, 0, &c));
	ck_assert_int_eq(cow_channel_send(c, &p, 1, "note", 4), 1);
	r = cow__socket_look(fd[1], m->bytes, sizeof(m->bytes), m->fds, RAW_FDS,
	                     &m->nfds);
	must(r > 0 && m->nfds > 0);
	m->count = (size_t)r;
	cow_channel_free(c);
	close(fd[0]);
	close(fd[1]);
}

static void message_free(struct message *m)
{
	while (m->nfds > 0)
		close(m->fds[--m->nfds]);
	cow_storage_unref(m->storage);
	cow_group_unref(m->group);
}

static void victim_of(struct victim *v, const struct message *m, int type)
{
	victim_make_with(v, type, m->group, COW_CHANNEL_TAKE_ALIASES);
}

static void arrives(struct victim *v)
{
	struct cow_parcel p;
	long n = take(v, &p, 1);

	if (n != 1)
		ck_abort_msg("the whole message gave %ld: %s", n, cow_last_error());
	ck_pattern(data(p.storage), BYTES, SEED);
	cow_storage_unref(p.storage);
}

/* The end comes where the message is cut; a good one came before. */
START_TEST(stream_that_ends)
{
	struct message m;
	struct victim v;

	message_make(&m, _i);
	for (size_t n = 0; n < m.count; n++) {
		struct raw before = raw_new();
		struct cow_parcel p[2];

		victim_of(&v, &m, SOCK_STREAM);
		raw_put(v.theirs, &before);
		if (n)
			must(put(v.theirs, m.bytes, n, m.fds, m.nfds, 0) == (long)n);
		close(v.theirs);
		v.theirs = -1;
		ck_assert_int_eq(take(&v, p, 2), 2);
		cow_storage_unref(p[0].storage);
		cow_storage_unref(p[1].storage);
		fails(-EPIPE, (int)take(&v, p, 2));
		fails(-EPIPE, (int)take(&v, p, 2));
		ck_assert_int_eq(footprint_now().fds, v.fds - 1);
		victim_free(&v);
	}
	victim_of(&v, &m, SOCK_STREAM);
	must(put(v.theirs, m.bytes, m.count, m.fds, m.nfds, 0) == (long)m.count);
	arrives(&v);
	ck_pattern(data(m.storage), BYTES, SEED);
	victim_free(&v);
	message_free(&m);
}
END_TEST

START_TEST(packet_that_ends)
{
	struct message m;
	struct victim v;

	message_make(&m, _i);
	victim_of(&v, &m, SOCK_SEQPACKET);
	for (size_t n = 1; n < m.count; n++) {
		must(put(v.theirs, m.bytes, n, m.fds, m.nfds, 0) == (long)n);
		refused(&v, -EBADMSG);
	}
	must(put(v.theirs, m.bytes, m.count, m.fds, m.nfds, 0) == (long)m.count);
	arrives(&v);
	ck_pattern(data(m.storage), BYTES, SEED);
	victim_free(&v);
	message_free(&m);
}
END_TEST

static const int types[] = { SOCK_STREAM, SOCK_SEQPACKET };

START_TEST(part_of_its_descriptors)
{
	struct message m;
	struct victim v;

	message_make(&m, _i / 2);
	victim_of(&v, &m, types[_i % 2]);
	for (unsigned nfds = 0; nfds < m.nfds; nfds++) {
		must(put(v.theirs, m.bytes, m.count, m.fds, nfds, 0) ==
		     (long)m.count);
		refused(&v, -EBADMSG);
		/* The last ones instead of the first. */
		must(put(v.theirs, m.bytes, m.count, m.fds + m.nfds - nfds, nfds,
		         0) == (long)m.count);
		refused(&v, -EBADMSG);
	}
	must(put(v.theirs, m.bytes, m.count, m.fds, m.nfds, 0) == (long)m.count);
	arrives(&v);
	victim_free(&v);
	message_free(&m);
}
END_TEST

/* Descriptors belong to the first byte. With a later one they belong to no message. */
START_TEST(descriptors_that_come_late)
{
	struct message m;
	struct victim v;

	message_make(&m, _i);
	for (size_t n = 1; n < m.count; n++) {
		victim_of(&v, &m, SOCK_STREAM);
		must(put(v.theirs, m.bytes, n, NULL, 0, 0) == (long)n);
		fails(-EAGAIN, (int)take(&v, &(struct cow_parcel){ 0 }, 1));
		must(put(v.theirs, (char *)m.bytes + n, m.count - n, m.fds, m.nfds,
		         0) > 0);
		refused(&v, -EBADMSG);
		victim_free(&v);
	}
	message_free(&m);
}
END_TEST

/* ---- A broker's answers ---------------------------------------------------------------- */

struct answers {
	int listener, file;
	unsigned nfds; /* with each */
	struct sockaddr_un address;
	socklen_t address_bytes;
};

/* Each answer but those to greetings is a byte longer than the one before, and the
 * last thing that is said. */
static void broker_that_dies(void *arg)
{
	struct answers *a = arg;
	struct cow_broker_message m;
	size_t n = 0;

	while (n <= sizeof(m)) {
		int fd = accept(a->listener, NULL, NULL);
		int fds[2] = { a->file, a->file };

		must(fd >= 0);
		while (recv(fd, &m, sizeof(m), 0) == (ssize_t)sizeof(m)) {
			m.result = 0;
			m.offset = 0;
			m.item.bytes = BYTES;
			m.item.mode = COW_SHARE_SEALED;
			if (m.operation == COW_BROKER_HELLO) {
				put(fd, &m, sizeof(m), NULL, 0, 0);
				continue;
			}
			put(fd, &m, n, fds, a->nfds, 0);
			n++;
			break;
		}
		close(fd);
	}
}

/* `name`: begins with @. */
static void listen_at(struct answers *a, const char *name)
{
	a->address.sun_family = AF_UNIX;
	strcpy(a->address.sun_path, name);
	a->address.sun_path[0] = '\0';
	a->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
	                               strlen(name));
	a->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	must(bind(a->listener, (struct sockaddr *)&a->address, a->address_bytes) == 0);
	must(listen(a->listener, 16) == 0);
}

/* Asks until an answer is whole. Returns what the last request gave; a request that fails
 * leaves `*ret` alone. */
static int get_until_whole(struct cow_broker *b, struct cow_storage **ret)
{
	struct cow_broker_item item = { .name = "name" };
	struct cow_storage *before = *ret;
	long fds = footprint_now().fds;
	int failed = 0, r;

	while ((r = cow_broker_get(b, &item, ret, NULL)) < 0) {
		if (r != -EPROTO && r != -ECONNRESET && r != -EBADMSG)
			ck_abort_msg("%d: %s", r, cow_last_error());
		must(cow_last_error()[0] != '\0');
		must(*ret == before);
		ck_assert_int_le(footprint_now().fds, fds);
		failed++;
		/* A whole answer to which a descriptor is missing. */
		if (r == -EBADMSG)
			break;
	}
	ck_assert_int_ge(failed, (int)sizeof(struct cow_broker_message) - 2);
	return r;
}

START_TEST(answer_that_ends)
{
	struct cow_broker_options o = { .size = sizeof(o) };
	struct answers a = { .nfds = (unsigned)_i };
	struct cow_storage *s = (void *)&a, *file;
	struct cow_broker *b;
	char name[64];
	uint64_t at;
	pid_t child;
	int r;

	snprintf(name, sizeof(name), "@cowshed-cuts-%d", (int)getpid());
	listen_at(&a, name);
	file = new_filled(BYTES, 0, SEED);
	ok(cow_storage_export(file, COW_SHARE_SEALED, &a.file, &at));
	ck_assert_uint_eq(at, 0);
	child = child_start(broker_that_dies, &a);
	close(a.listener);
	o.address = name;
	ok(cow_broker_open(&o, &b));
	r = get_until_whole(b, &s);
	if (_i) {
		ok(r);
		ck_pattern(data(s), BYTES, SEED);
		cow_storage_unref(s);
	} else {
		ck_assert_int_eq(r, -EBADMSG);
	}
	child_finish(child);
	cow_broker_unref(b);
	cow_storage_unref(file);
	close(a.file);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile_cuts");
	TCase *tcase = add_case(suite, "hostile_cuts");

	tcase_add_loop_test(tcase, stream_that_ends, 0, 6);
	tcase_add_loop_test(tcase, packet_that_ends, 0, 6);
	tcase_add_loop_test(tcase, part_of_its_descriptors, 0, 12);
	tcase_add_loop_test(tcase, descriptors_that_come_late, 0, 6);
	tcase_add_loop_test(tcase, answer_that_ends, 0, 3);
	return run_suite(suite);
}
