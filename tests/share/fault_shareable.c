/* SPDX-License-Identifier: MIT */
/*
 * Storages that are born shareable, with every kernel call and every pool failing in turn
 *
 * They are made in other memory then, or not at all. What can't be given away as it lies is
 * copied, or stays as it was.
 */
#include "tests/support/ends.h"
#include "tests/support/fault/fault.h"

#include <errno.h>

#define BYTES (300 * KIB)

static const int errors[] = { ENOMEM, EMFILE, EPERM, FAULT_POOLS };
enum { ROWS = COUNT(errors) * COUNT(modes) };

/* Once more without failures: the call succeeds, and the bytes are those that were sent. */
static void goes(struct ends *e, struct cow_channel *c, struct cow_storage *s,
                 enum cow_share_mode mode)
{
	struct cow_storage *got;

	send_one(e->mine, s, mode);
	got = receive_one(c);
	ck_pattern(data(got), BYTES, 1);
	fill(mut(s), BYTES, 2);
	ck_pattern(data(got), BYTES, mode == COW_SHARE_ALIAS ? 2 : 1);
	cow_storage_unref(got);
}

START_TEST(sent)
{
	enum cow_share_mode mode = modes[_i % COUNT(modes)];
	int error = errors[_i / COUNT(modes)];
	struct cow_channel *c;
	bool fired = true;
	struct ends e;

	ends_make(&e, SOCK_SEQPACKET, false);
	c = child_channel(&e);
	for (int n = 1; fired; n++) {
		struct cow_storage *s = new_filled(BYTES, COW_STORAGE_SHAREABLE, 1);
		struct cow_parcel p = cow_parcel_of(s, mode);
		long r;

		fault_after(n, error);
		r = cow_channel_send(e.mine, &p, 1, NULL, 0);
		fired = fault_disarm();
		if (r < 0)
			must(cow_last_error()[0] != '\0');
		ck_pattern(data(s), BYTES, 1);
		if (r == 1) {
			ok(cow_channel_flush(e.mine)); /* after a shortage */
			p.storage = receive_one(c);
			ck_pattern(data(p.storage), BYTES, 1);
			cow_storage_unref(p.storage);
		} else {
			/* After a failure of the socket a channel is done for. */
			(void)cow_channel_free(e.mine);
			ok(cow_channel_new(e.fd[0], NULL, 0, &e.mine));
		}
		goes(&e, c, s, mode);
		cow_storage_unref(s);
	}
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

START_TEST(made)
{
	const struct cow_storage_options o = {
		.size = sizeof(o), .flags = COW_STORAGE_SHAREABLE | COW_STORAGE_ZERO,
	};
	bool fired = true;

	for (int n = 1; fired; n++) {
		struct cow_storage *s = NULL;
		int r;

		fault_after(n, errors[_i]);
		r = cow_storage_new(BYTES, &o, &s);
		fired = fault_disarm();
		if (r < 0) {
			ck_assert_ptr_null(s);
			must(cow_last_error()[0] != '\0');
			continue;
		}
		ck_bytes(data(s), BYTES, 0);
		fill(mut(s), BYTES, 1);
		ck_pattern(data(s), BYTES, 1);
		(void)info_of(s).shared;
		cow_storage_unref(s);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_shareable");
	TCase *all = add_case(suite, "shareable");

	tcase_add_loop_test(all, sent, 0, ROWS);
	tcase_add_loop_test(all, made, 0, COUNT(errors));
	return run_suite(suite);
}
