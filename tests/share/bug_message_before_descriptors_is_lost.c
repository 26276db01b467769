/* SPDX-License-Identifier: MIT */
/*
 * A message without descriptors, and behind it in the stream one that has some
 *
 * A look at the first message also showed the descriptors of the second, because a peek goes
 * on past the bytes that it was asked for. So the first one was refused with -EBADMSG and
 * lost.
 */
#include "tests/support/ends.h"

enum { SMALL = 300, LARGE = 100000 };

static void send_all(struct cow_channel *c, struct cow_storage *small,
                     struct cow_storage *large)
{
	ck_assert_int_eq(cow_channel_send(c, NULL, 0, "note", 4), 0);
	send_one(c, small, COW_SHARE_CLONE);
	send_one(c, large, COW_SHARE_SEALED);
	ck_assert_int_eq(cow_channel_send(c, NULL, 0, "note", 4), 0);
	send_one(c, large, COW_SHARE_CLONE);
}

static void receive_note(struct cow_channel *c)
{
	char note[COW_NOTE_MAX];
	size_t bytes;

	ck_assert_int_eq(cow_channel_receive(c, NULL, 0, note, sizeof(note), &bytes), 0);
	ck_assert_uint_eq(bytes, 4);
}

static void receive_bytes(struct cow_channel *c, size_t bytes)
{
	struct cow_storage *s = receive_one(c);

	ck_assert_uint_eq(cow_storage_bytes(s), bytes);
	ck_pattern(data(s), bytes, bytes);
	cow_storage_unref(s);
}

START_TEST(all_arrive)
{
	struct cow_storage *small = new_filled(SMALL, 0, SMALL);
	struct cow_storage *large = new_filled(LARGE, 0, LARGE);
	struct cow_channel *theirs;
	struct ends e;

	ends_make(&e, SOCK_STREAM, false);
	ok(cow_channel_new(e.fd[1], NULL, 0, &theirs));
	send_all(e.mine, small, large);
	receive_note(theirs);
	receive_bytes(theirs, SMALL);
	receive_bytes(theirs, LARGE);
	receive_note(theirs);
	receive_bytes(theirs, LARGE);
	cow_channel_free(theirs);
	ends_free(&e);
	cow_storage_unref(small);
	cow_storage_unref(large);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_message_before_descriptors_is_lost");

	tcase_add_test(add_case(suite, "bug"), all_arrive);
	return run_suite(suite);
}
