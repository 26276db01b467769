/* SPDX-License-Identifier: MIT */
/*
 * Storages in several processes: modes, groups, death
 *
 * A pair of sockets, one end in the test and one in a child, or both in the test.
 * Every mode is sent with a group and without, over streams and packets, blocking
 * and not.
 */
#include "tests/support/broker.h"
#include "tests/support/ends.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Every mode ------------------------------------------------------------ */

/* Receives, checks, writes, and tells what it wrote. */
static void receiver(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	struct cow_storage *s = receive_one(c);

	ck_assert_uint_eq(cow_storage_bytes(s), t->bytes);
	ck_pattern(data(s), t->bytes, 7);
	gate_open(&t->back);
	gate_wait(&t->gate);
	/* The other side has written by now. */
	if (t->mode == COW_SHARE_ALIAS)
		ck_pattern(data(s), t->bytes, 8);
	else
		ck_pattern(data(s), t->bytes, 7);
	fill(mut(s), t->bytes, 9);
	gate_open(&t->back);
	gate_wait(&t->gate);
	ck_pattern(data(s), t->bytes, 9);
	cow_storage_unref(s);
	cow_channel_free(c);
}

static void all_of(int type, bool grouped, enum cow_share_mode mode, size_t bytes)
{
	struct story t = { .bytes = bytes, .mode = mode };
	struct cow_storage *s = new_filled(bytes, 0, 7);
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, type, grouped);
	child = child_start(receiver, &t);
	send_one(t.ends.mine, s, mode);
	gate_wait(&t.back);
	fill(mut(s), bytes, 8);
	gate_open(&t.gate);
	gate_wait(&t.back);
	ck_pattern(data(s), bytes, mode == COW_SHARE_ALIAS ? 9 : 8);
	gate_open(&t.gate);
	child_finish(child);
	cow_storage_unref(s);
	ends_free(&t.ends);
	gate_free(&t.gate);
	gate_free(&t.back);
}

START_TEST(every_mode_and_size)
{
	for (size_t i = 0; i < COUNT(sizes); i++)
		all_of(_i & 1 ? SOCK_SEQPACKET : SOCK_STREAM, _i & 2,
		       modes[_i / 4], sizes[i]);
}
END_TEST

/* ---- Who goes first ------------------------------------------------------------ */

static void sender_that_exits(void *arg)
{
	struct ends *e = arg;
	struct cow_channel *c = child_channel(e);
	struct cow_group *group = NULL;
	struct cow_storage *s = new_filled(MIB + 5, 0, 3);

	if (e->group) {
		int fd;

		ok(cow_group_fd(e->group, &fd));
		ok(cow_group_join(fd, &group));
		close(fd);
		cow_channel_free(c);
		ok(cow_channel_new(e->fd[1], group, 0, &c));
	}
	for (size_t i = 0; i < COUNT(modes); i++)
		send_one(c, s, modes[i]);
	kill(getpid(), SIGKILL);
}

START_TEST(sender_is_killed_right_after_sending)
{
	struct ends e;
	pid_t child;

	ends_make(&e, SOCK_STREAM, _i);
	child = child_start(sender_that_exits, &e);
	ck_assert_int_eq(child_status(child), SIGKILL);
	close(e.fd[1]);
	e.fd[1] = -1;
	for (size_t i = 0; i < COUNT(modes); i++) {
		struct cow_storage *s = receive_one(e.mine);

		ck_pattern(data(s), MIB + 5, 3);
		fill(mut(s), MIB + 5, 4);
		ck_pattern(data(s), MIB + 5, 4);
		cow_storage_unref(s);
	}
	fails(-EPIPE, (int)cow_channel_receive(e.mine, &(struct cow_parcel){ 0 },
	                                       1, NULL, 0, NULL));
	ends_free(&e);
}
END_TEST

struct chain {
	struct ends ab, bc;
	struct gate gate;
	bool written;
	enum cow_share_mode mode;
	struct host *host; /* NULL: descriptors travel, no tokens */
};

/* How this process sends, and where it looks for what it was sent. */
static void by_strategy(struct chain *t)
{
	struct cow_broker *b;

	if (t->host == NULL)
		return;
	b = host_connect(t->host);
	ok(cow_strategy_set(COW_STRATEGY_BROKER, b));
	cow_broker_unref(b);
}

static void chain_a(void *arg)
{
	struct chain *t = arg;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(3 * MIB, 0, 1);

	by_strategy(t);
	ok(cow_channel_new(t->ab.fd[1], t->ab.group, 0, &c));
	send_one(c, s, t->mode);
	pause();
}

static void chain_c(void *arg)
{
	struct chain *t = arg;
	struct cow_channel *c = child_channel(&t->bc);
	struct cow_storage *s;

	by_strategy(t);
	s = receive_one(c);
	ck_pattern(data(s), 3 * MIB, t->written ? 2 : 1);
	cow_storage_unref(s);
	cow_channel_free(c);
}

/* A shares with B, A is killed, B shares with C: also what B has written. */
START_TEST(received_is_sent_on_after_its_creator_was_killed)
{
	struct chain t = { .written = _i & 1, .mode = modes[_i / 4 % 3] };
	bool grouped = _i & 2;
	struct cow_storage *s;
	struct host host;
	pid_t a, c;

	if (_i >= 12) {
		host_start(&host, NULL);
		t.host = &host;
	}

	ends_make(&t.ab, SOCK_STREAM, grouped);
	ends_make(&t.bc, SOCK_STREAM, false);
	cow_channel_free(t.bc.mine);
	ok(cow_channel_new(t.bc.fd[0], t.ab.group, 0, &t.bc.mine));
	a = child_start(chain_a, &t);
	by_strategy(&t);
	s = receive_one(t.ab.mine);
	kill(a, SIGKILL);
	(void)child_status(a);
	if (t.written)
		fill(mut(s), 3 * MIB, 2);
	c = child_start(chain_c, &t);
	send_one(t.bc.mine, s, t.mode);
	child_finish(c);
	cow_storage_unref(s);
	ends_free(&t.bc);
	ends_free(&t.ab);
	if (t.host)
		host_end(&host);
}
END_TEST

/* ---- Counting --------------------------------------------------------------------- */

START_TEST(received_twice_is_one_storage)
{
	struct ends e;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(100 * KIB, 0, 1), *a, *b;

	ends_make(&e, SOCK_STREAM, _i & 1);
	c = child_channel(&e);
	send_one(e.mine, s, modes[_i / 2]);
	send_one(e.mine, s, modes[_i / 2]);
	a = receive_one(c);
	b = receive_one(c);
	ck_assert_ptr_eq(data(a), data(b));
	if (modes[_i / 2] == COW_SHARE_CLONE)
		ck_assert_ptr_ne(a, b);
	else
		ck_assert_ptr_eq(a, b);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

static void drops(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	struct cow_storage *s = receive_one(c);

	gate_open(&t->back);
	gate_wait(&t->gate);
	cow_storage_unref(s);
	gate_open(&t->back);
	gate_wait(&t->gate);
	cow_channel_free(c);
}

static void is_killed(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);

	(void)receive_one(c);
	gate_open(&t->back);
	gate_wait(&t->gate);
	kill(getpid(), SIGKILL);
}

static void never_receives(void *arg)
{
	struct story *t = arg;

	gate_open(&t->back);
	gate_wait(&t->gate);
	kill(getpid(), SIGKILL);
}

/* The last holder in the system writes in place again. */
START_TEST(last_holder_writes_in_place)
{
	static child_fn *const ends[] = { drops, is_killed, never_receives };
	struct story t = { .bytes = 2 * MIB };
	struct cow_storage *s;
	const void *before;
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, SOCK_STREAM, true);
	child = child_start(ends[_i], &t);
	ok(cow_group_storage_new(t.ends.group, t.bytes, COW_SHARE_CLONE, &s));
	fill(mut(s), t.bytes, 1);
	before = data(s);
	send_one(t.ends.mine, s, COW_SHARE_CLONE);
	gate_wait(&t.back);
	ck_assert_int_eq(state_of(s), COW_STATE_LAZY);
	gate_open(&t.gate);
	if (_i == 0) {
		gate_wait(&t.back);
	} else {
		(void)child_status(child);
		/* What is in the queue is held by the queue. */
		cow_channel_free(t.ends.mine);
		close(t.ends.fd[0]);
		close(t.ends.fd[1]);
	}
	fill(mut(s), t.bytes, 2);
	ck_assert_ptr_eq(data(s), before);
	ck_pattern(data(s), t.bytes, 2);
	cow_storage_unref(s);
	if (_i == 0) {
		gate_open(&t.gate);
		child_finish(child);
		ends_free(&t.ends);
	} else {
		cow_group_unref(t.ends.group);
	}
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

/* ---- fork ----------------------------------------------------------------------------- */

struct forked {
	struct ends ends;
	struct cow_storage *alias, *clone, *owned;
	struct gate gate, back;
};

static void forked_child(void *arg)
{
	struct forked *t = arg;
	struct cow_parcel p = parcel(t->clone, COW_SHARE_CLONE);

	fails(-EPERM, (int)cow_channel_send(t->ends.mine, &p, 1, NULL, 0));
	gate_wait(&t->gate);
	ck_pattern(data(t->alias), MIB, 11);
	ck_pattern(data(t->clone), MIB, 2);
	ck_pattern(data(t->owned), MIB, 3);
	fill(mut(t->alias), MIB, 21);
	fill(mut(t->clone), MIB, 22);
	fill(mut(t->owned), MIB, 23);
	gate_open(&t->back);
	gate_wait(&t->gate);
	ck_pattern(data(t->clone), MIB, 22);
	ck_pattern(data(t->owned), MIB, 23);
}

START_TEST(fork_isolates_all_but_aliases)
{
	struct forked t;
	unsigned char *owned;
	struct cow_channel *c;
	struct cow_storage *r;
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, SOCK_STREAM, true);
	ok(cow_group_storage_new(t.ends.group, MIB, COW_SHARE_ALIAS, &t.alias));
	ok(cow_group_storage_new(t.ends.group, MIB, COW_SHARE_CLONE, &t.clone));
	ok(cow_group_storage_new(t.ends.group, MIB, COW_SHARE_CLONE, &t.owned));
	fill(mut(t.alias), MIB, 1);
	fill(mut(t.clone), MIB, 2);
	owned = mut(t.owned);
	fill(owned, MIB, 3);
	c = child_channel(&t.ends);
	send_one(t.ends.mine, t.clone, COW_SHARE_CLONE);
	child = child_start(forked_child, &t);
	fill(mut(t.alias), MIB, 11);
	fill(mut(t.clone), MIB, 12);
	fill(owned, MIB, 13); /* the pointer from before is good still */
	gate_open(&t.gate);
	gate_wait(&t.back);
	ck_pattern(data(t.alias), MIB, 21);
	ck_pattern(data(t.clone), MIB, 12);
	ck_pattern(data(t.owned), MIB, 13);
	gate_open(&t.gate);
	child_finish(child);
	/* What was sent before, and what is sent now. */
	r = receive_one(c);
	ck_pattern(data(r), MIB, 2);
	cow_storage_unref(r);
	send_one(t.ends.mine, t.owned, COW_SHARE_CLONE);
	r = receive_one(c);
	ck_pattern(data(r), MIB, 13);
	cow_storage_unref(r);
	cow_storage_unref(t.alias);
	cow_storage_unref(t.clone);
	cow_storage_unref(t.owned);
	cow_channel_free(c);
	ends_free(&t.ends);
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share");
	TCase *tcase = add_case(suite, "share");

	tcase_add_loop_test(tcase, every_mode_and_size, 0, 12);
	tcase_add_loop_test(tcase, sender_is_killed_right_after_sending, 0, 2);
	tcase_add_loop_test(tcase,
	                    received_is_sent_on_after_its_creator_was_killed, 0,
	                    24);
	tcase_add_loop_test(tcase, received_twice_is_one_storage, 0, 6);
	tcase_add_loop_test(tcase, last_holder_writes_in_place, 0, 3);
	tcase_add_test(tcase, fork_isolates_all_but_aliases);
	return run_suite(suite);
}
