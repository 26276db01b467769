/* SPDX-License-Identifier: MIT */
/*
 * A clone that was received alone, exposed, and sent on
 *
 * Its only holder writes in place, so the address that it gives away lies in the group's
 * memory. When the clone was sent on, the receiver got the same pages. So the receiver saw
 * what the program wrote at that address afterwards.
 */
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 64 * 1024 };

START_TEST(it_keeps_its_bytes)
{
	struct cow_channel *a, *b;
	struct cow_storage *s;
	struct cow_group *g;
	struct cow_parcel p;
	void *address;
	int fd[2];

	ok(cow_group_new(&g));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
	ok(cow_channel_new(fd[0], g, 0, &a));
	ok(cow_channel_new(fd[1], g, 0, &b));
	ok(cow_group_storage_new(g, BYTES, COW_SHARE_CLONE, &s));
	ok(cow_storage_expose(s, &address));
	fill(address, BYTES, 1);
	p = (struct cow_parcel){ .storage = s, .length = BYTES, .mode = COW_SHARE_CLONE };
	ck_assert_int_eq(cow_channel_send(a, &p, 1, NULL, 0), 1);
	fill(address, BYTES, 2);
	ck_assert_int_eq(cow_channel_receive(b, &p, 1, NULL, 0, NULL), 1);
	ck_pattern(data(p.storage), BYTES, 1);
	ck_pattern(data(s), BYTES, 2);
	fill(mut(p.storage), BYTES, 3);
	ck_pattern(data(s), BYTES, 2);
	cow_storage_unref(p.storage);
	cow_storage_unref(s);
	cow_channel_free(a);
	cow_channel_free(b);
	close(fd[0]);
	close(fd[1]);
	cow_group_unref(g);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_sent_clone_is_written_by_its_sender");
	TCase *tcase = add_case(suite, "regress");

	tcase_add_test(tcase, it_keeps_its_bytes);
	return run_suite(suite);
}
