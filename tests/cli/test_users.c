/* SPDX-License-Identifier: MIT */
/*
 * The broker's users: who counts as whom, what all of them leave, and that none is kept
 */
#include "cli/broker.h"
#include "tests/support/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PEOPLE = 100000, OWN = 4000000, SUBORDINATE = 3000000, EACH = 65536 };

static const struct broker_limit few[] = { { 16, 14, 8 }, { 16, 14, 8 }, { 64, 56, 32 } },
                                 many[] = { { PEOPLE, PEOPLE, 8 },
	                                    { PEOPLE, PEOPLE, 8 },
	                                    { PEOPLE, PEOPLE, 8 } };

/* A file as /etc/subuid. */
static const char *file_of(const char *text)
{
	static char path[64];
	int fd = memfd_create("subuid", 0);

	must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}

static struct broker_user *enters(uint32_t uid)
{
	struct broker_user *u = NULL;

	ok(broker_user_enter(uid, &u));
	return u;
}

/* The table of users has those that are there. */
START_TEST(users_that_went_are_forgotten)
{
	struct broker_user *stays, *u;

	ok(broker_users_open(many, NULL));
	stays = enters(OWN);
	for (uint32_t i = 0; i < PEOPLE; i++) {
		u = enters(OWN + 1 + i);
		if (i % 3 == 0) { /* something outlives the connection */
			ok(broker_user_take(u, BROKER_OBJECT));
			broker_user_give(u, BROKER_CLIENT);
			ck_assert_uint_eq(broker_users_count(), 2);
			broker_user_give(u, BROKER_OBJECT);
		} else {
			broker_user_give(u, BROKER_CLIENT);
		}
		ck_assert_uint_eq(broker_users_count(), 1);
	}
	broker_user_give(stays, BROKER_CLIENT);
	ck_assert_uint_eq(broker_users_count(), 0);
}
END_TEST

/* A user that is refused leaves nothing, either. */
START_TEST(users_that_are_refused_are_forgotten)
{
	struct broker_user *in[14], *none = NULL;

	ok(broker_users_open(few, NULL));
	for (uint32_t i = 0; i < COUNT(in); i++)
		in[i] = enters(OWN + i);
	for (uint32_t i = 0; i < PEOPLE; i++)
		ck_assert_int_eq(broker_user_enter(OWN + 100 + i, &none), -ENOSPC);
	ck_assert_ptr_null(none);
	ck_assert_uint_eq(broker_users_count(), COUNT(in));
	for (size_t i = 0; i < COUNT(in); i++)
		broker_user_give(in[i], BROKER_CLIENT);
	ck_assert_uint_eq(broker_users_count(), 0);
}
END_TEST

/* Many users together leave a part of each kind for root and the broker's own user. */
START_TEST(others_leave_a_part)
{
	struct broker_user *u[14], *none = NULL, *own;

	ok(broker_users_open(few, NULL));
	for (uint32_t i = 0; i < COUNT(u); i++) {
		u[i] = enters(OWN + i);
		ok(broker_user_take(u[i], BROKER_OBJECT));
	}
	ck_assert_int_eq(broker_user_enter(OWN + 99, &none), -ENOSPC);
	ck_assert_int_eq(broker_user_take(u[0], BROKER_OBJECT), -ENOSPC);
	own = enters(geteuid());
	ok(broker_user_take(own, BROKER_OBJECT));
	ok(broker_user_enter(0, &none));
	ck_assert_int_eq(broker_user_enter(0, &none), -ENOSPC);
}
END_TEST

START_TEST(subordinate_users_count_as_their_owner)
{
	struct broker_user *u[8], *other;

	ok(broker_users_open(few, file_of("no line\n"
	                                  "4000000:3000000:65536\n"
	                                  "0:2000000:65536\n"
	                                  "nobody-has-this-name:1000000:65536\n"
	                                  "4000001:x:1\n")));
	for (uint32_t i = 0; i < COUNT(u); i++) {
		u[i] = enters(i == 0 ? OWN : SUBORDINATE + i * (EACH / 8));
		ck_assert_ptr_eq(u[i], u[0]);
	}
	ck_assert_uint_eq(u[0]->id, OWN);
	ck_assert_int_eq(broker_user_enter(SUBORDINATE + EACH - 1, &other), -ENOSPC);
	ck_assert_int_eq(broker_user_enter(OWN, &other), -ENOSPC);
	/* Behind the range. */
	ck_assert_ptr_ne(enters(SUBORDINATE + EACH), u[0]);
	/* One user, and not root, whose part it must not take. */
	ck_assert_uint_eq(enters(2000000)->id, 2000000);
	ck_assert_uint_eq(enters(2000009)->id, 2000000);
	ck_assert_uint_eq(enters(1000009)->id, 1000000);
}
END_TEST

START_TEST(no_file_of_subordinate_users)
{
	ok(broker_users_open(few, "/no/such/file"));
	ck_assert_uint_eq(enters(SUBORDINATE)->id, SUBORDINATE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("users");
	TCase *tcase = add_case(suite, "users");

	tcase_add_test(tcase, users_that_went_are_forgotten);
	tcase_add_test(tcase, users_that_are_refused_are_forgotten);
	tcase_add_test(tcase, others_leave_a_part);
	tcase_add_test(tcase, subordinate_users_count_as_their_owner);
	tcase_add_test(tcase, no_file_of_subordinate_users);
	return run_suite(suite);
}
