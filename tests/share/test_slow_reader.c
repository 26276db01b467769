/* SPDX-License-Identifier: MIT */
/*
 * A member of a group that does not read its messages stops nobody else
 *
 * Each message of a group has one of its 256 slots, as each member has, until it is read. The
 * storages of a message without a slot are copied.
 */
#include "tests/support/ends.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define BYTES (8 * KIB)
#define MANY 255 /* fit into the queue of a packet socket */

struct slow {
	struct ends slow, other;
	struct cow_channel *reader, *end; /* of the slow one; of the other one */
	unsigned sent;
};

static void parcels_to(struct slow *t, struct cow_storage *s, enum cow_share_mode mode)
{
	for (int i = 0; i < MANY; i++) {
		struct cow_parcel p = cow_parcel_of(s, mode);

		if (cow_channel_send(t->slow.mine, &p, 1, NULL, 0) != 1)
			break;
		t->sent++;
	}
}

/* Both groups are one. */
static void slow_make(struct slow *t, int type)
{
	ends_make(&t->slow, type, true);
	must(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, t->other.fd) == 0);
	t->other.group = cow_group_ref(t->slow.group);
	ok(cow_channel_new(t->other.fd[0], t->other.group, 0, &t->other.mine));
	ok(cow_channel_new(t->slow.fd[1], t->slow.group, 0, &t->reader));
	ok(cow_channel_new(t->other.fd[1], t->slow.group, 0, &t->end));
	t->sent = 0;
}

static void slow_free(struct slow *t)
{
	cow_channel_free(t->reader);
	cow_channel_free(t->end);
	ends_free(&t->slow);
	ends_free(&t->other);
}

static struct cow_storage *in_group(struct slow *t, enum cow_share_mode mode)
{
	struct cow_storage *s;

	ok(cow_group_storage_new(t->slow.group, BYTES, mode, &s));
	fill(mut(s), BYTES, 1);
	return s;
}

static void read_all(struct slow *t)
{
	for (unsigned i = 0; i < t->sent; i++) {
		struct cow_storage *s = receive_one(t->reader);

		ck_pattern(data(s), BYTES, 1);
		cow_storage_unref(s);
	}
}

static void becomes_a_member(void *arg)
{
	struct cow_group *g;

	ok(cow_group_join(*(int *)arg, &g));
	cow_group_unref(g);
}

/* _i: does the socket block? */
START_TEST(clones_go_to_others)
{
	int type = SOCK_SEQPACKET | (_i ? 0 : SOCK_NONBLOCK), door;
	struct cow_storage *s, *alias, *got;
	struct slow t;

	slow_make(&t, type);
	s = in_group(&t, COW_SHARE_CLONE);
	alias = in_group(&t, COW_SHARE_ALIAS);
	parcels_to(&t, s, COW_SHARE_CLONE);
	ck_assert_uint_eq(t.sent, MANY);
	for (int i = 0; i < 20; i++) {
		send_one(t.other.mine, s, COW_SHARE_CLONE);
		send_one(t.other.mine, alias, COW_SHARE_ALIAS);
		got = receive_one(t.end);
		ck_pattern(data(got), BYTES, 1);
		fill(mut(got), BYTES, 2);
		cow_storage_unref(got);
		got = receive_one(t.end);
		ck_assert_ptr_eq(got, alias);
		cow_storage_unref(got);
	}
	ck_pattern(data(s), BYTES, 1);
	ok(cow_group_fd(t.slow.group, &door));
	in_child(becomes_a_member, &door);
	close(door);
	read_all(&t);
	cow_storage_unref(s);
	cow_storage_unref(alias);
	slow_free(&t);
}
END_TEST

/* An alias can't be copied. The error says what is short, not that the socket is full. */
START_TEST(aliases_may_find_no_slot)
{
	struct cow_storage *alias, *got;
	struct slow t;
	struct cow_parcel p;
	int door;

	slow_make(&t, SOCK_SEQPACKET);
	alias = in_group(&t, COW_SHARE_ALIAS);
	p = cow_parcel_of(alias, COW_SHARE_ALIAS);
	parcels_to(&t, alias, COW_SHARE_ALIAS);
	ck_assert_uint_lt(t.sent, MANY);
	fails(-EUSERS, (int)cow_channel_send(t.slow.mine, &p, 1, NULL, 0));
	fails(-EUSERS, (int)cow_channel_send(t.other.mine, &p, 1, NULL, 0));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "slots"));
	ok(cow_group_fd(t.slow.group, &door));
	in_child(becomes_a_member, &door);
	close(door);
	read_all(&t);
	send_one(t.other.mine, alias, COW_SHARE_ALIAS);
	got = receive_one(t.end);
	ck_assert_ptr_eq(got, alias);
	cow_storage_unref(got);
	cow_storage_unref(alias);
	slow_free(&t);
}
END_TEST

/* ---- What waits in a channel -------------------------------------------------------- */

static int pending(struct cow_channel *c, size_t parcels)
{
	size_t n = 99;
	int r = cow_channel_pending(c, &n);

	ck_assert_int_ge(r, 0);
	ck_assert_uint_eq(n, parcels);
	ck_assert_int_eq(cow_channel_pending(c, NULL), r);
	return r;
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	must(poll(&p, 1, 0) >= 0);
	return p.revents & POLLIN;
}

START_TEST(parcels_wait_in_the_channel)
{
	struct cow_storage *s = new_filled(1000, 0, 1);
	struct cow_channel *c;
	struct cow_parcel p[3];
	struct ends e;

	ends_make(&e, _i ? SOCK_STREAM : SOCK_SEQPACKET, false);
	c = child_channel(&e);
	for (size_t i = 0; i < COUNT(p); i++)
		p[i] = cow_parcel_of(s, COW_SHARE_CLONE);
	ck_assert_int_eq(pending(c, 0), 0);
	ck_assert_int_eq(cow_channel_send(e.mine, p, 3, "n", 1), 3);
	ck_assert_int_eq(pending(e.mine, 0), 0);
	ck_assert_int_eq(pending(c, 0), 0);
	must(readable(e.fd[1]));
	for (size_t left = COUNT(p); left-- > 0;) {
		cow_storage_unref(receive_one(c));
		must(!readable(e.fd[1]));
		ck_assert_int_eq(pending(c, left), left ? COW_PENDING_RECEIVE : 0);
	}
	/* A note alone is given at once. */
	ck_assert_int_eq(cow_channel_send(e.mine, NULL, 0, "n", 1), 0);
	ck_assert_int_eq(cow_channel_receive(c, p, 1, NULL, 0, NULL), 0);
	ck_assert_int_eq(pending(c, 0), 0);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

START_TEST(a_message_waits_to_be_sent)
{
	static char note[COW_NOTE_MAX];
	struct cow_channel *c;
	struct ends e;
	long r = 0;

	ends_make(&e, SOCK_STREAM | SOCK_NONBLOCK, false);
	c = child_channel(&e);
	while (!(pending(e.mine, 0) & COW_PENDING_SEND)) {
		r = cow_channel_send(e.mine, NULL, 0, note, sizeof(note));
		must(r == 0);
	}
	while (pending(e.mine, 0) & COW_PENDING_SEND) {
		r = cow_channel_receive(c, NULL, 0, NULL, 0, NULL);
		must(r == 0 || r == -EAGAIN);
		r = cow_channel_flush(e.mine);
		must(r == 0 || r == -EAGAIN);
	}
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* A message for which there is no memory left is out of the socket. */
START_TEST(a_message_waits_for_memory)
{
	struct cow_storage *s = new_filled(MIB, 0, 1);
	struct rlimit was, none;
	struct cow_channel *c;
	struct cow_parcel p;
	struct ends e;

	ends_make(&e, SOCK_SEQPACKET | SOCK_NONBLOCK, false);
	c = child_channel(&e);
	send_one(e.mine, s, COW_SHARE_SEALED);
	cow_storage_unref(s);
	getrlimit(RLIMIT_AS, &was);
	none = (struct rlimit){ MIB, was.rlim_max };
	must(setrlimit(RLIMIT_AS, &none) == 0);
	ck_assert_int_eq(cow_channel_receive(c, &p, 1, NULL, 0, NULL), -ENOMEM);
	must(setrlimit(RLIMIT_AS, &was) == 0);
	must(!readable(e.fd[1]));
	ck_assert_int_eq(pending(c, 0), COW_PENDING_RECEIVE);
	s = receive_one(c);
	ck_pattern(data(s), MIB, 1);
	ck_assert_int_eq(pending(c, 0), 0);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

static void asks(void *arg)
{
	fails(-EPERM, cow_channel_pending(arg, NULL));
}

START_TEST(refused)
{
	struct ends e;

	ends_make(&e, SOCK_STREAM, false);
	fails(-EINVAL, cow_channel_pending(NULL, NULL));
	in_child(asks, e.mine);
	ends_free(&e);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slow_reader");
	TCase *all = add_case(suite, "slow_reader");

	tcase_add_loop_test(all, clones_go_to_others, 0, 2);
	tcase_add_test(all, aliases_may_find_no_slot);
	tcase_add_loop_test(all, parcels_wait_in_the_channel, 0, 2);
	tcase_add_test(all, a_message_waits_to_be_sent);
	if (!SANITIZED)
		tcase_add_test(all, a_message_waits_for_memory);
	tcase_add_test(all, refused);
	return run_suite(suite);
}
