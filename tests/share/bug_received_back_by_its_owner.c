/* SPDX-License-Identifier: MIT */
/*
 * A storage that its maker sent, freed, and received back
 *
 * Its extent was in limbo: freed here, held elsewhere. When no other process held it any
 * more, it was handed out again, although this process held it. Then two storages were on
 * the same pages.
 */
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 64 * 1024, MORE = 50 };

static struct cow_storage *make(struct cow_group *g, uint64_t seed)
{
	struct cow_storage *s;

	ok(cow_group_storage_new(g, BYTES, COW_SHARE_CLONE, &s));
	fill(mut(s), BYTES, seed);
	return s;
}

/* _i & 1: written after it came back; _i & 2: freed and made again in between. */
START_TEST(it_stays_its_own)
{
	struct cow_storage *s, *more[MORE];
	struct cow_channel *a, *b;
	struct cow_group *g;
	struct cow_parcel p;
	int fd[2];

	ok(cow_group_new(&g));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
	ok(cow_channel_new(fd[0], g, 0, &a));
	ok(cow_channel_new(fd[1], g, 0, &b));
	for (int round = 0; round < 3; round++) {
		s = make(g, 1);
		p = (struct cow_parcel){ .storage = s, .length = BYTES,
			                 .mode = COW_SHARE_CLONE };
		ck_assert_int_eq(cow_channel_send(a, &p, 1, NULL, 0), 1);
		cow_storage_unref(s);
		ck_assert_int_eq(cow_channel_receive(b, &p, 1, NULL, 0, NULL),
		                 1);
		s = p.storage;
		if (_i & 1)
			fill(mut(s), BYTES, 1);
		if (_i & 2)
			cow_storage_unref(s);
		for (uint64_t i = 0; i < MORE; i++)
			more[i] = make(g, 100 + i);
		if (!(_i & 2)) {
			ck_pattern(data(s), BYTES, 1);
			cow_storage_unref(s);
		}
		for (uint64_t i = 0; i < MORE; i++)
			ck_pattern(data(more[i]), BYTES, 100 + i);
		for (uint64_t i = 0; i < MORE; i++)
			cow_storage_unref(more[i]);
	}
	cow_channel_free(a);
	cow_channel_free(b);
	close(fd[0]);
	close(fd[1]);
	cow_group_unref(g);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_received_back_by_its_owner");
	TCase *tcase = add_case(suite, "bug_received_back_by_its_owner");

	tcase_add_loop_test(tcase, it_stays_its_own, 0, 4);
	return run_suite(suite);
}
