/* SPDX-License-Identifier: MIT */
/*
 * The broker: what it holds and for which clients, which users may get it, and that neither
 * its death nor a client's does harm. test_hostile.c has its attackers.
 */
#include "tests/support/broker.h"

#include <cowshed-broker.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const enum cow_share_mode modes[] = { COW_SHARE_ALIAS, COW_SHARE_CLONE,
	                                     COW_SHARE_SEALED };

/* ---- The four calls ----------------------------------------------------------- */

struct other {
	struct host *host;
	struct cow_broker_item item;
	uint64_t seed;
};

static void gets_it(void *arg)
{
	struct other *o = arg;
	struct cow_broker *b = host_connect(o->host);
	struct cow_broker_item got;
	struct cow_storage *s;

	ok(cow_broker_get(b, &o->item, &s, &got));
	ck_assert_uint_eq(got.bytes, cow_storage_bytes(s));
	ck_assert_uint_eq(got.mode, o->item.mode);
	ck_pattern(data(s), cow_storage_bytes(s), o->seed);
	fill(mut(s), cow_storage_bytes(s), 99);
	cow_storage_unref(s);
	cow_broker_unref(b);
}

START_TEST(put_and_got_in_every_mode)
{
	enum cow_share_mode mode = modes[_i];
	struct cow_storage *s = new_filled(3 * PAGE + 5, 0, 4);
	struct other o = { .item = { .mode = mode }, .seed = 4 };
	struct host host;
	struct cow_broker *b;

	host_start(&host, NULL);
	o.host = &host;
	b = host_connect(&host);
	ok(cow_broker_put(b, s, &o.item));
	ck_assert(o.item.token.a || o.item.token.b);
	in_child(gets_it, &o);
	ck_pattern(data(s), 3 * PAGE + 5, mode == COW_SHARE_ALIAS ? 99 : 4);
	o.seed = mode == COW_SHARE_ALIAS ? 99 : 4;
	in_child(gets_it, &o);
	ok(cow_broker_drop(b, &o.item));
	fails(-ENOENT, cow_broker_get(b, &o.item, &s, NULL));
	fails(-ENOENT, cow_broker_drop(b, &o.item));
	cow_storage_unref(s);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

/* By the name that the kernel shows. */
static int close_all_named(const char *name)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *e;
	int closed = 0;

	must(dir != NULL);
	while ((e = readdir(dir)) != NULL) {
		char link[64] = "";

		if (readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1) > 0 &&
		    strstr(link, name) != NULL && close(atoi(e->d_name)) == 0)
			closed++;
	}
	closedir(dir);
	return closed;
}

/* A program closes descriptors that it does not know: the number of what was put is another
 * file then, or none. _i: the connection, too. */
START_TEST(closed_by_the_program)
{
	struct cow_storage *s = new_filled(MIB, 0, 1), *t = new_filled(MIB, 0, 2), *r;
	struct cow_broker_item one = host_item("one", COW_SHARE_SEALED);
	struct cow_broker_item two = host_item("two", COW_SHARE_SEALED);
	struct host host;
	struct cow_broker *b;

	host_start(&host, NULL);
	b = host_connect(&host);
	ok(cow_broker_put(b, s, &one));
	must(close_all_named("memfd:") > 0);
	if (_i)
		must(close_all_named("socket:") > 0);
	ok(cow_broker_put(b, t, &two));
	ok(cow_broker_get(b, &two, &r, NULL));
	ck_pattern(data(r), MIB, 2);
	cow_storage_unref(r);
	/* It lives in the file that was closed. */
	one = host_item("again", COW_SHARE_SEALED);
	fails(-EBADF, cow_broker_put(b, s, &one));
	ok(cow_broker_get(b, &two, &r, NULL));
	cow_storage_unref(r);
	ck_pattern(data(s), MIB, 1);
	cow_storage_unref(s);
	cow_storage_unref(t);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

START_TEST(names_and_lists)
{
	struct cow_storage *s = new_filled(MIB, 0, 1), *none = new_storage(0, 0);
	struct cow_broker_item item = host_item("one", COW_SHARE_SEALED), got;
	struct cow_storage *r;
	struct host host;
	struct cow_broker *b;
	uint64_t cursor = 0;
	int seen = 0, n;

	host_start(&host, NULL);
	b = host_connect(&host);
	ok(cow_broker_put(b, s, &item));
	fails(-EEXIST, cow_broker_put(b, s, &item));
	item = host_item("nothing", COW_SHARE_CLONE);
	ok(cow_broker_put(b, none, &item));
	ok(cow_broker_get(b, &item, &r, NULL));
	ck_assert_uint_eq(cow_storage_bytes(r), 0);
	cow_storage_unref(r);
	item = host_item("", COW_SHARE_CLONE);
	ok(cow_broker_put(b, s, &item));
	while ((n = cow_broker_list(b, &cursor, &got)) == 1) {
		seen |= !strcmp(got.name, "one") && got.bytes == MIB ? 1 : 0;
		seen |= !strcmp(got.name, "nothing") && !got.bytes ? 2 : 0;
		seen |= got.token.a == item.token.a && !got.name[0] ? 4 : 0;
	}
	ck_assert_int_eq(n, 0);
	ck_assert_int_eq(seen, 7);
	item = host_item("a/b", COW_SHARE_SEALED);
	fails(-EINVAL, cow_broker_put(b, s, &item));
	item = host_item("tab\t", COW_SHARE_SEALED);
	fails(-EINVAL, cow_broker_put(b, s, &item));
	memset(item.name, 'x', sizeof(item.name));
	fails(-EINVAL, cow_broker_put(b, s, &item));
	item = host_item("x", COW_SHARE_SEALED);
	item.permissions = 0777;
	fails(-EINVAL, cow_broker_put(b, s, &item));
	item = host_item("one", COW_SHARE_SEALED);
	ok(cow_broker_drop(b, &item));
	ok(cow_broker_put(b, s, &item));
	cow_storage_unref(s);
	cow_storage_unref(none);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

START_TEST(no_descriptor_left_to_get_with)
{
	struct cow_broker_item item = { .mode = COW_SHARE_CLONE };
	struct cow_storage *s = new_filled(PAGE, 0, 1), *r = NULL;
	struct rlimit before, none;
	struct host host;
	struct cow_broker *b;

	host_start(&host, NULL);
	b = host_connect(&host);
	ok(cow_broker_put(b, s, &item));
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 3;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	fails(-EMFILE, cow_broker_get(b, &item, &r, NULL));
	ck_assert_ptr_null(r);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ok(cow_broker_get(b, &item, &r, NULL));
	cow_storage_unref(r);
	cow_storage_unref(s);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

/* ---- Death of clients ------------------------------------------------------------ */

struct dying {
	struct host *host;
	struct gate told, never;
	struct cow_broker_item items[3];
};

static void puts_and_waits(void *arg)
{
	struct dying *d = arg;
	struct cow_broker *b = host_connect(d->host);
	struct cow_storage *s = new_filled(MIB, 0, 6);

	d->items[0] = host_item("", COW_SHARE_SEALED);
	d->items[1] = host_item("lasting", COW_SHARE_SEALED);
	d->items[2] = host_item("fleeting", COW_SHARE_SEALED);
	d->items[2].flags = COW_BROKER_EPHEMERAL;
	for (int i = 0; i < 3; i++)
		ok(cow_broker_put(b, s, &d->items[i]));
	gate_send(&d->told, d->items, sizeof(d->items));
	gate_wait(&d->never);
}

struct asked {
	struct cow_broker *b;
	const struct cow_broker_item *item;
};

static bool is_gone(void *arg)
{
	struct asked *a = arg;
	struct cow_storage *s;
	int r = cow_broker_get(a->b, a->item, &s, NULL);

	if (r == 0)
		cow_storage_unref(s);
	return r == -ENOENT;
}

START_TEST(what_only_the_dead_held_is_dropped)
{
	struct dying d;
	struct host host;
	struct cow_broker *b;
	struct cow_storage *s;
	pid_t child;
	bool held = _i; /* by us, too */

	host_start(&host, NULL);
	d.host = &host;
	gate_make(&d.told);
	gate_make(&d.never);
	child = child_start(puts_and_waits, &d);
	gate_receive(&d.told, d.items, sizeof(d.items));
	b = host_connect(&host);
	ok(cow_broker_get(b, &d.items[0], &s, NULL));
	if (held)
		ok(cow_broker_put(b, s, &d.items[0]));
	kill(child, SIGKILL);
	child_status(child);
	ck_assert(wait_until(is_gone, &(struct asked){ b, &d.items[2] }, 20));
	ck_assert_int_eq(is_gone(&(struct asked){ b, &d.items[0] }), !held);
	ck_assert(!is_gone(&(struct asked){ b, &d.items[1] }));
	ck_pattern(data(s), MIB, 6);
	cow_storage_unref(s);
	cow_broker_unref(b);
	gate_free(&d.told);
	gate_free(&d.never);
	host_end(&host);
}
END_TEST

static void uses_the_parents(void *arg)
{
	struct other *o = arg;
	struct cow_broker *b = (void *)(uintptr_t)o->seed;
	struct cow_storage *s;

	ok(cow_broker_get(b, &o->item, &s, NULL));
	cow_storage_unref(s);
	cow_broker_unref(b);
}

START_TEST(a_forked_child_drops_nothing_of_its_parents)
{
	struct other o = { .item = { .mode = COW_SHARE_CLONE } };
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	struct host host;
	struct cow_broker *b;

	host_start(&host, NULL);
	b = host_connect(&host);
	o.seed = (uintptr_t)b;
	ok(cow_broker_put(b, s, &o.item));
	in_child(uses_the_parents, &o);
	in_child(uses_the_parents, &o);
	cow_storage_unref(s);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

struct family {
	struct dying d;
	struct gate child_is_there;
};

static void waits(void *arg)
{
	struct family *f = arg;

	gate_open(&f->child_is_there);
	gate_wait(&f->d.never);
}

static void puts_and_forks(void *arg)
{
	struct family *f = arg;
	struct cow_broker *b = host_connect(f->d.host);
	struct cow_storage *s = new_filled(PAGE, 0, 6);

	f->d.items[0] = host_item("", COW_SHARE_SEALED);
	ok(cow_broker_put(b, s, &f->d.items[0]));
	child_start(waits, f);
	gate_wait(&f->child_is_there);
	gate_send(&f->d.told, f->d.items, sizeof(f->d.items));
	gate_wait(&f->d.never);
}

START_TEST(a_parents_death_is_seen_while_its_child_lives)
{
	struct family f = { 0 };
	struct host host;
	struct cow_broker *b;
	pid_t child;

	host_start(&host, NULL);
	f.d.host = &host;
	gate_make(&f.d.told);
	gate_make(&f.d.never);
	gate_make(&f.child_is_there);
	child = child_start(puts_and_forks, &f);
	gate_receive(&f.d.told, f.d.items, sizeof(f.d.items));
	b = host_connect(&host);
	ck_assert(!is_gone(&(struct asked){ b, &f.d.items[0] }));
	kill(child, SIGKILL);
	child_status(child);
	ck_assert(wait_until(is_gone, &(struct asked){ b, &f.d.items[0] }, 10));
	gate_open(&f.d.never);
	cow_broker_unref(b);
	gate_free(&f.d.told);
	gate_free(&f.d.never);
	gate_free(&f.child_is_there);
	host_end(&host);
}
END_TEST

/* ---- Death of the broker ------------------------------------------------------------ */

START_TEST(a_killed_broker_harms_nobody_and_learns_again)
{
	struct cow_broker_item items[4] = {
		{ .mode = COW_SHARE_ALIAS },
		{ .mode = COW_SHARE_CLONE },
		host_item("lasting", COW_SHARE_SEALED),
		host_item("none", COW_SHARE_SEALED),
	};
	struct cow_storage *s[4], *r;
	struct host host;
	struct cow_broker *mine, *other;

	host_start(&host, NULL);
	mine = host_connect(&host);
	other = host_connect(&host);
	for (int i = 0; i < 4; i++) {
		s[i] = new_filled(i < 3 ? MIB : 0, 0, (uint64_t)i);
		ok(cow_broker_put(mine, s[i], &items[i]));
	}
	ok(cow_broker_get(other, &items[1], &r, NULL));
	host_kill(&host);
	for (int i = 0; i < 3; i++) {
		ck_pattern(data(s[i]), MIB, (uint64_t)i);
		fill(mut(s[i]), MIB, 50);
	}
	ck_pattern(data(r), MIB, 1);
	cow_storage_unref(r);
	refuses(cow_broker_get(other, &items[1], &r, NULL));
	host_again(&host, NULL);
	ok(cow_broker_refresh(mine));
	for (int i = 0; i < 3; i++) {
		ok(cow_broker_get(other, &items[i], &r, NULL));
		ck_pattern(data(r), MIB, i == 0 ? 50 : (uint64_t)i);
		cow_storage_unref(r);
	}
	ok(cow_broker_get(other, &items[3], &r, NULL));
	cow_storage_unref(r);
	for (int i = 0; i < 4; i++)
		cow_storage_unref(s[i]);
	cow_broker_unref(mine);
	cow_broker_unref(other);
	host_end(&host);
}
END_TEST

/* ---- Behind channels ---------------------------------------------------------------------- */

START_TEST(parcels_travel_as_tokens)
{
	enum cow_share_mode mode = modes[_i % 3];
	bool per_call = _i / 3;
	struct cow_storage *s = new_filled(MIB + 7, 0, 3);
	struct cow_parcel p = { .storage = s, .length = MIB + 7, .mode = mode };
	struct cow_parcel got;
	struct cow_channel *to, *from;
	struct cow_broker *b;
	struct host host;
	int fd[2];

	host_start(&host, NULL);
	b = host_connect(&host);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	ok(cow_channel_new(fd[0], NULL, 0, &to));
	ok(cow_channel_new(fd[1], NULL, COW_CHANNEL_TAKE_ALIASES, &from));
	fails(-EINVAL, cow_strategy_set(COW_STRATEGY_BROKER, NULL));
	ck_assert_int_eq(cow_strategy_get(), COW_STRATEGY_FD);
	ok(cow_strategy_set(per_call ? COW_STRATEGY_FD : COW_STRATEGY_BROKER, b));
	p.strategy = per_call ? COW_STRATEGY_BROKER : COW_STRATEGY_DEFAULT;
	ck_assert_int_eq(cow_channel_send(to, &p, 1, "n", 1), 1);
	/* By way of the broker, indeed. */
	ck_assert_int_eq(host_objects(b), 1);
	ck_assert_int_eq(cow_channel_receive(from, &got, 1, NULL, 0, NULL), 1);
	ck_assert_int_eq(host_objects(b), 0);
	ck_pattern(data(got.storage), MIB + 7, 3);
	fill(mut(got.storage), MIB + 7, 4);
	ck_pattern(data(s), MIB + 7, mode == COW_SHARE_ALIAS ? 4 : 3);
	cow_storage_unref(got.storage);
	/* What the broker forgot is not there; the channel goes on. */
	ck_assert_int_eq(cow_channel_send(to, &p, 1, NULL, 0), 1);
	host_kill(&host);
	host_again(&host, NULL);
	fails(-ESTALE, (int)cow_channel_receive(from, &got, 1, NULL, 0, NULL));
	p.strategy = COW_STRATEGY_FD;
	ck_assert_int_eq(cow_channel_send(to, &p, 1, NULL, 0), 1);
	ck_assert_int_eq(host_objects(b), 0);
	ck_assert_int_eq(cow_channel_receive(from, &got, 1, NULL, 0, NULL), 1);
	cow_storage_unref(got.storage);
	p.strategy = 3;
	fails(-EINVAL, (int)cow_channel_send(to, &p, 1, NULL, 0));
	cow_channel_free(to);
	cow_channel_free(from);
	close(fd[0]);
	close(fd[1]);
	cow_storage_unref(s);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker");
	TCase *tcase = add_case(suite, "broker");

	tcase_add_loop_test(tcase, put_and_got_in_every_mode, 0, 3);
	tcase_add_loop_test(tcase, closed_by_the_program, 0, 2);
	tcase_add_test(tcase, names_and_lists);
	tcase_add_test(tcase, no_descriptor_left_to_get_with);
	tcase_add_loop_test(tcase, what_only_the_dead_held_is_dropped, 0, 2);
	tcase_add_test(tcase, a_forked_child_drops_nothing_of_its_parents);
	tcase_add_test(tcase, a_parents_death_is_seen_while_its_child_lives);
	tcase_add_test(tcase, a_killed_broker_harms_nobody_and_learns_again);
	tcase_add_loop_test(tcase, parcels_travel_as_tokens, 0, 6);
	return run_suite(suite);
}
