/* SPDX-License-Identifier: MIT */
/*
 * A process with many packs of one group: its own, one after each fork, and those of other
 * members
 */
#include "tests/support/ends.h"

static struct cow_storage *packed(struct cow_group *g, uint64_t seed)
{
	struct cow_storage *s;

	ok(cow_group_storage_new(g, 64 * KIB, COW_SHARE_CLONE, &s));
	fill(mut(s), 64 * KIB, seed);
	return s;
}

enum { MANY_PACKS = 30 };

static void does_nothing(void *unused)
{
	(void)unused;
}

/* A sent storage lies in a pack that was not retired by a fork, so each fork needs a new one. */
START_TEST(forked_in_between)
{
	struct cow_storage *s[MANY_PACKS], *r;
	struct cow_channel *c;
	struct ends e;

	ends_make(&e, SOCK_STREAM, true);
	c = child_channel(&e);
	for (uint64_t i = 0; i < MANY_PACKS; i++) {
		s[i] = packed(e.group, i);
		in_child(does_nothing, NULL);
	}
	for (uint64_t i = 0; i < MANY_PACKS; i++) {
		send_one(e.mine, s[i], COW_SHARE_CLONE);
		r = receive_one(c);
		ck_pattern(data(r), 64 * KIB, i);
		cow_storage_unref(r);
		cow_storage_unref(s[i]);
	}
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

static void sends_one(void *arg)
{
	struct ends *e = arg;
	struct cow_channel *c = child_channel(e);
	struct cow_storage *s;
	struct cow_parcel p;
	struct cow_group *g;
	size_t bytes;
	char note;

	must(cow_channel_receive(c, &p, 1, &note, 1, &bytes) == 0); /* joins */
	g = cow_channel_group(c);
	s = packed(g, 1);
	send_one(c, s, COW_SHARE_CLONE);
	cow_storage_unref(s);
	cow_group_unref(g);
	cow_channel_free(c);
}

/* A process that has storages of many members still has room for its own. */
START_TEST(many_members)
{
	struct cow_storage *s[MANY_PACKS], *own;
	struct ends e;

	ends_make(&e, SOCK_STREAM, true);
	for (int i = 0; i < MANY_PACKS; i++) {
		ok((int)cow_channel_send(e.mine, NULL, 0, "", 1));
		in_child(sends_one, &e);
		s[i] = receive_one(e.mine);
	}
	own = packed(e.group, 2);
	for (int i = 0; i < MANY_PACKS; i++) {
		ck_pattern(data(s[i]), 64 * KIB, 1);
		cow_storage_unref(s[i]);
	}
	ck_pattern(data(own), 64 * KIB, 2);
	cow_storage_unref(own);
	ends_free(&e);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("packs");
	TCase *tcase = add_case(suite, "packs");

	tcase_add_test(tcase, forked_in_between);
	tcase_add_test(tcase, many_members);
	return run_suite(suite);
}
