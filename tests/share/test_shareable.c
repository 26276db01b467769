/* SPDX-License-Identifier: MIT */
/*
 * Storages that are born shareable: the first send copies nothing, and
 * cow_storage_get_info() tells what a send would cost
 */
#include "tests/support/ends.h"

#include <errno.h>
#include <stdlib.h>

static const size_t lengths[] = { 513, PAGE, 100 * KIB, MIB + 3, 9 * MIB };
static const uint32_t kinds[] = { 0, COW_STORAGE_TRANSPARENT, COW_STORAGE_ZERO,
	                          COW_STORAGE_STRICT };
enum { CASES = COUNT(lengths) * COUNT(kinds) * COUNT(modes) * 2 };

struct row {
	size_t bytes;
	uint32_t flags;
	enum cow_share_mode mode;
	bool grouped;
	uint64_t shared; /* afterwards */
};

static struct row row(int i)
{
	struct row r = { .bytes = lengths[i % COUNT(lengths)] };

	/* While the helper works on pages they are not given away. */
	ok(cow_option_set("helper", "off"));
	i /= COUNT(lengths);
	r.flags = kinds[i % COUNT(kinds)] | COW_STORAGE_SHAREABLE;
	i /= COUNT(kinds);
	r.mode = modes[i % COUNT(modes)];
	r.grouped = i / COUNT(modes);
	r.shared = r.mode == COW_SHARE_ALIAS ? COW_SHARED_ALIAS : COW_SHARED_SEALED;
	return r;
}

static uint64_t shared(const struct cow_storage *s)
{
	struct cow_storage_info i = info_of(s);

	ck_assert_uint_ne(i.flags & COW_STORAGE_SHAREABLE, 0);
	return i.shared;
}

START_TEST(sent_without_a_copy)
{
	struct row r = row(_i);
	struct cow_storage *s = new_filled(r.bytes, r.flags, 1), *got;
	struct cow_channel *c;
	struct ends e;
	uint64_t copied;

	ends_make(&e, SOCK_SEQPACKET, r.grouped);
	c = child_channel(&e);
	ck_assert_uint_eq(shared(s), COW_SHARED_READY);
	if (r.mode == COW_SHARE_ALIAS && r.flags & COW_STORAGE_TRANSPARENT)
		ok(cow_storage_share_in_place(s));
	copied = stats_now().bytes_copied;
	for (int i = 0; i < 2; i++) {
		send_one(e.mine, s, r.mode);
		got = receive_one(c);
		ck_pattern(data(got), r.bytes, 1);
		ck_pattern(data(s), r.bytes, 1);
		ck_assert_uint_eq(shared(s), r.shared);
		cow_storage_unref(got);
	}
	ck_assert_uint_eq(stats_now().bytes_copied, copied);
	send_one(e.mine, s, r.mode);
	got = receive_one(c);
	fill(mut(s), r.bytes, 2);
	ck_pattern(data(s), r.bytes, 2);
	ck_pattern(data(got), r.bytes, r.mode == COW_SHARE_ALIAS ? 2 : 1);
	if (r.mode != COW_SHARE_ALIAS) {
		ck_assert_uint_eq(shared(s), COW_SHARED_NOT);
		fill(mut(got), r.bytes, 3);
		ck_pattern(data(s), r.bytes, 2);
	}
	cow_storage_unref(s);
	ck_assert_uint_eq(data(got)[0], data(got)[0]);
	cow_storage_unref(got);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

static void takes(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	struct cow_storage *s = receive_one(c);

	ck_pattern(data(s), t->bytes, 1);
	if (t->mode == COW_SHARE_ALIAS)
		fill(mut(s), t->bytes, 2);
	gate_open(&t->back);
	gate_wait(&t->gate); /* the sender has freed it */
	ck_pattern(data(s), t->bytes, t->mode == COW_SHARE_ALIAS ? 2 : 1);
	cow_storage_unref(s);
	cow_channel_free(c);
}

/* The other process keeps the bytes when the maker has gone. */
START_TEST(lives_in_the_other_process)
{
	struct row r = row(_i);
	struct story t = { .bytes = r.bytes, .mode = r.mode };
	struct cow_storage *s;
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, SOCK_STREAM, r.grouped);
	child = child_start(takes, &t);
	s = new_filled(r.bytes, r.flags & ~(uint32_t)COW_STORAGE_TRANSPARENT, 1);
	send_one(t.ends.mine, s, r.mode);
	gate_wait(&t.back);
	ck_pattern(data(s), r.bytes, r.mode == COW_SHARE_ALIAS ? 2 : 1);
	cow_storage_unref(s);
	gate_open(&t.gate);
	child_finish(child);
	ends_free(&t.ends);
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

START_TEST(exported_without_a_copy)
{
	struct row r = row(_i);
	struct cow_storage *s = new_filled(r.bytes, r.flags, 1), *got;
	uint64_t copied = stats_now().bytes_copied, offset;
	int fd;

	if (r.mode == COW_SHARE_ALIAS && r.flags & COW_STORAGE_TRANSPARENT)
		ok(cow_storage_share_in_place(s));
	ok(cow_storage_export(s, r.mode, &fd, &offset));
	ok(cow_storage_import(fd, offset, r.bytes, r.mode, &got));
	close(fd);
	ck_pattern(data(got), r.bytes, 1);
	ck_assert_uint_eq(stats_now().bytes_copied, copied);
	cow_storage_unref(s);
	cow_storage_unref(got);
}
END_TEST

/* Clones and other sizes are shareable, too. */
START_TEST(what_is_made_of_it)
{
	struct cow_storage *s = new_filled(5 * MIB, COW_STORAGE_SHAREABLE, 1), *b, *c;

	ok(cow_storage_clone(s, &b));
	ck_assert_uint_eq(shared(b), COW_SHARED_READY);
	c = lazy(s);
	mut_range(c, 0, 1, COW_WRITE_BY_COPY)[0] ^= 1;
	ck_assert_uint_eq(shared(c), COW_SHARED_READY);
	ok(cow_storage_resize(s, 2 * MIB + 5));
	ck_assert_uint_eq(shared(s), COW_SHARED_READY);
	ok(cow_storage_resize(b, 90 * MIB));
	ck_assert_uint_eq(shared(b), COW_SHARED_READY);
	ck_pattern(data(b), 5 * MIB, 1);
	cow_storage_unref(s);
	cow_storage_unref(b);
	cow_storage_unref(c);
}
END_TEST

/* What a shrunk storage had is not in the file that goes out. */
START_TEST(shrunk_and_sent)
{
	struct cow_storage *s = new_filled(9 * MIB, COW_STORAGE_SHAREABLE, 1), *got;
	uint64_t copied, offset, bytes = 2 * MIB + 100;
	unsigned char *rest = malloc(PAGE);
	int fd;

	ok(cow_option_set("helper", "off"));
	ok(cow_storage_resize(s, bytes));
	copied = stats_now().bytes_copied;
	ok(cow_storage_export(s, COW_SHARE_SEALED, &fd, &offset));
	ck_assert_uint_eq(stats_now().bytes_copied, copied);
	ck_assert_int_eq(pread(fd, rest, PAGE, (off_t)(offset + bytes)), PAGE);
	ck_bytes(rest, PAGE, 0);
	ck_assert_int_eq(lseek(fd, (off_t)(offset + bytes + PAGE), SEEK_DATA), -1);
	ok(cow_storage_import(fd, offset, bytes, COW_SHARE_SEALED, &got));
	ck_pattern(data(got), bytes, 1);
	close(fd);
	free(rest);
	cow_storage_unref(s);
	cow_storage_unref(got);
}
END_TEST

/* Each costs a descriptor: with a few left, storages are made in other memory. */
START_TEST(more_than_may_be)
{
	enum { N = 40 };
	struct cow_storage *s[N];
	struct rlimit was, few;
	int ready = 0;

	getrlimit(RLIMIT_NOFILE, &was);
	few = (struct rlimit){ 64, was.rlim_max };
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < N; i++) {
		s[i] = new_filled(64 * KIB, COW_STORAGE_SHAREABLE, (uint64_t)i);
		ready += shared(s[i]) == COW_SHARED_READY;
	}
	setrlimit(RLIMIT_NOFILE, &was);
	ck_assert_int_ge(ready, 8);
	ck_assert_int_lt(ready, N);
	for (int i = 0; i < N; i++) {
		ck_pattern(data(s[i]), 64 * KIB, (uint64_t)i);
		cow_storage_unref(s[i]);
	}
}
END_TEST

/* What info tells of all others. */
START_TEST(told)
{
	struct cow_storage *s = new_filled(MIB, 0, 1), *alias, *clone, *got, *plain;
	struct cow_channel *c;
	struct ends e;

	ends_make(&e, SOCK_STREAM, true);
	c = child_channel(&e);
	ck_assert_uint_eq(info_of(s).shared, COW_SHARED_NOT);
	send_one(e.mine, s, COW_SHARE_SEALED);
	got = receive_one(c);
	ck_assert_uint_eq(info_of(s).shared, COW_SHARED_SEALED);
	ck_assert_uint_eq(info_of(got).shared, COW_SHARED_SEALED);
	mut_range(got, 0, 1, COW_WRITE_BY_PAGE)[0] = 3;
	ck_assert_uint_eq(info_of(got).shared, COW_SHARED_NOT);
	ok(cow_group_storage_new(e.group, MIB, COW_SHARE_ALIAS, &alias));
	ok(cow_group_storage_new(e.group, MIB, COW_SHARE_CLONE, &clone));
	ck_assert_uint_eq(info_of(alias).shared, COW_SHARED_ALIAS);
	ck_assert_uint_eq(info_of(clone).shared, COW_SHARED_CLONE);
	plain = new_storage(MIB, COW_STORAGE_TRANSPARENT);
	ck_assert_uint_eq(info_of(plain).shared, COW_SHARED_NOT);
	ok(cow_storage_share_in_place(plain));
	ck_assert_uint_eq(info_of(plain).shared, COW_SHARED_ALIAS);
	cow_storage_unref(plain);
	cow_storage_unref(s);
	cow_storage_unref(got);
	cow_storage_unref(alias);
	cow_storage_unref(clone);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

static int copy(void *user, void *dst, const void *src, size_t count)
{
	(void)user;
	(void)dst;
	(void)src;
	(void)count;
	return 0;
}

START_TEST(not_with_elements)
{
	static const struct cow_element_hooks hooks = {
		.size = sizeof(hooks), .element_bytes = 8, .copy = copy,
	};
	const struct cow_storage_options o = {
		.size = sizeof(o), .flags = COW_STORAGE_SHAREABLE, .elements = &hooks,
	};
	struct cow_storage *s;

	fails(-EOPNOTSUPP, cow_storage_new(64, &o, &s));
}
END_TEST

START_TEST(parcels_of_whole_storages)
{
	struct cow_storage *s = new_filled(3000, 0, 1);
	struct cow_parcel p = cow_parcel_of(s, COW_SHARE_SEALED);

	ck_assert_ptr_eq(p.storage, s);
	ck_assert_uint_eq(p.offset, 0);
	ck_assert_uint_eq(p.length, 3000);
	ck_assert_uint_eq(p.mode, COW_SHARE_SEALED);
	ck_assert_uint_eq(p.strategy, 0);
	ck_assert_uint_eq(cow_storage_use_count(s), 1);
	p = cow_parcel_of(NULL, COW_SHARE_CLONE);
	ck_assert_ptr_null(p.storage);
	ck_assert_uint_eq(p.length, 0);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shareable");
	TCase *all = add_case(suite, "shareable");

	tcase_add_loop_test(all, sent_without_a_copy, 0, CASES);
	tcase_add_loop_test(all, lives_in_the_other_process, 0, CASES);
	tcase_add_loop_test(all, exported_without_a_copy, 0, CASES / 2);
	tcase_add_test(all, what_is_made_of_it);
	tcase_add_test(all, shrunk_and_sent);
	tcase_add_test(all, more_than_may_be);
	tcase_add_test(all, told);
	tcase_add_test(all, not_with_elements);
	tcase_add_test(all, parcels_of_whole_storages);
	return run_suite(suite);
}
