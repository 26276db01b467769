/* SPDX-License-Identifier: MIT */
/*
 * Storages in several processes: modes, groups, fork
 *
 * A pair of sockets, one end in the test and one in a child, or both in the test.
 * Every mode and size is sent with a group and without, over streams and packets.
 * test_killed.c has the deaths.
 */
#include "tests/support/ends.h"

#include <errno.h>
#include <sys/socket.h>
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
	if (modes[_i / 2] == COW_SHARE_ALIAS)
		ck_assert_ptr_eq(a, b);
	else
		ck_assert_ptr_ne(a, b);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
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
	/* The message from before the fork, and one from after it. */
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
	tcase_add_loop_test(tcase, received_twice_is_one_storage, 0, 6);
	tcase_add_test(tcase, fork_isolates_all_but_aliases);
	return run_suite(suite);
}
