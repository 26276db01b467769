/* SPDX-License-Identifier: MIT */
/*
 * Storages that were received, cloned and sent on
 *
 * A program that knows no storages gets the address of a received storage, and may write
 * there unseen. Until it writes, a clone and a message cost no copy of the bytes. After
 * that a clone costs the pages that were written.
 */
#include "tests/support/ends.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 4 * 1024 * 1024 + 77 };

static uint64_t copied(void)
{
	return stats_now().bytes_copied;
}

/* A sender and two receivers in turn, all in this process. */
struct chain {
	struct ends first, second;
	struct cow_channel *in, *last;
};

static void chain_make(struct chain *t, bool grouped)
{
	ok(cow_option_set("share", "yes"));
	ends_make(&t->first, SOCK_SEQPACKET, grouped);
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
	                t->second.fd) == 0);
	t->second.group = cow_group_ref(t->first.group);
	ok(cow_channel_new(t->second.fd[0], t->second.group, 0,
	                   &t->second.mine));
	ok(cow_channel_new(t->first.fd[1], t->first.group, 0, &t->in));
	ok(cow_channel_new(t->second.fd[1], t->first.group, 0, &t->last));
}

static void chain_free(struct chain *t)
{
	cow_channel_free(t->in);
	cow_channel_free(t->last);
	ends_free(&t->first);
	ends_free(&t->second);
}

/* A storage of each kind that can be sent without a copy, filled: a block by
 * address, or a tracked one that moved to the group or to a memfd. */
enum { GIVEN, TRACKED, KINDS };

static struct cow_storage *made(int kind, uint64_t seed)
{
	return new_filled(BYTES, kind == GIVEN ? COW_STORAGE_TRANSPARENT : 0,
	                  seed);
}

static unsigned char *place(struct cow_storage *s)
{
	void *p;

	ok(cow_storage_expose(s, &p));
	return p;
}

START_TEST(received_is_cloned_by_page)
{
	struct cow_storage *s, *r, *clone, *again;
	struct chain t;
	uint64_t before;

	chain_make(&t, _i & 2);
	s = made(_i & 1, 1);
	send_one(t.first.mine, s, COW_SHARE_CLONE);
	r = receive_one(t.in);
	place(r);
	before = copied();
	clone = lazy(r);
	ck_assert_uint_eq(copied(), before);
	/* Both write. Neither sees the other's bytes, nor does the sender. */
	place(r)[5 * PAGE + 3] ^= 1;
	mut_range(clone, 9 * PAGE, 1, COW_WRITE_BY_PAGE)[9 * PAGE] ^= 2;
	place(r)[5 * PAGE + 3] ^= 1;
	ck_pattern(data(r), BYTES, 1);
	mut_range(clone, 9 * PAGE, 1, COW_WRITE_BY_PAGE)[9 * PAGE] ^= 2;
	ck_pattern(data(clone), BYTES, 1);
	/* The next clone has the bytes that were written, and nothing else is copied. */
	memset(place(r), 3, PAGE);
	memset(place(r) + BYTES - 10, 4, 10);
	before = copied();
	again = lazy(r);
	ck_assert_uint_le(copied() - before, 3 * PAGE);
	memset(place(r), 7, PAGE);
	ck_bytes((unsigned char *)data(again), PAGE, 3);
	ck_bytes((unsigned char *)data(again) + BYTES - 10, 10, 4);
	ck_pattern(data(clone), BYTES, 1);
	ck_pattern(data(s), BYTES, 1);
	/* A clone of the clone, when all others are freed. */
	cow_storage_unref(r);
	cow_storage_unref(s);
	r = lazy(again);
	cow_storage_unref(again);
	ck_bytes((unsigned char *)data(r), PAGE, 3);
	cow_storage_unref(r);
	cow_storage_unref(clone);
	chain_free(&t);
}
END_TEST

START_TEST(rewritten_is_copied)
{
	struct cow_storage *s, *r, *clone, *last;
	struct chain t;
	uint64_t before;

	chain_make(&t, _i & 2);
	s = made(_i & 1, 1);
	send_one(t.first.mine, s, COW_SHARE_CLONE);
	r = receive_one(t.in);
	fill(place(r), BYTES, 2);
	before = copied();
	clone = lazy(r);
	ck_assert_uint_ge(copied() - before, BYTES);
	send_one(t.second.mine, r, COW_SHARE_CLONE);
	fill(place(r), BYTES, 3);
	last = receive_one(t.last);
	ck_pattern(data(last), BYTES, 2);
	ck_pattern(data(clone), BYTES, 2);
	ck_pattern(data(s), BYTES, 1);
	cow_storage_unref(last);
	cow_storage_unref(clone);
	cow_storage_unref(r);
	cow_storage_unref(s);
	chain_free(&t);
}
END_TEST

START_TEST(received_is_sent_on)
{
	struct cow_storage *s, *r, *last;
	enum cow_share_mode mode =
	        _i & 4 ? COW_SHARE_SEALED : COW_SHARE_CLONE;
	struct chain t;
	uint64_t before;

	chain_make(&t, _i & 2);
	s = made(_i & 1, 1);
	send_one(t.first.mine, s, mode);
	r = receive_one(t.in);
	place(r);
	cow_storage_unref(s);
	before = copied();
	send_one(t.second.mine, r, mode);
	ck_assert_uint_eq(copied(), before);
	/* Bytes that are written after the send were not sent. */
	fill(place(r), BYTES, 2);
	last = receive_one(t.last);
	ck_pattern(data(last), BYTES, 1);
	ck_pattern(data(r), BYTES, 2);
	before = copied();
	send_one(t.second.mine, r, mode);
	ck_assert_uint_ge(copied() - before, BYTES);
	cow_storage_unref(last);
	last = receive_one(t.last);
	ck_pattern(data(last), BYTES, 2);
	cow_storage_unref(last);
	cow_storage_unref(r);
	chain_free(&t);
}
END_TEST

/* Received, and its address not given away: the file of a given block has nothing else, and
 * its receiver can check that. */
START_TEST(given_goes_on)
{
	struct cow_storage *s, *r, *last;
	struct chain t;
	uint64_t before;
	int fd;

	chain_make(&t, _i & 1);
	s = made(GIVEN, 1);
	send_one(t.first.mine, s, COW_SHARE_CLONE);
	r = receive_one(t.in);
	before = copied();
	send_one(t.second.mine, r, COW_SHARE_CLONE);
	ck_assert_uint_eq(copied(), before);
	last = receive_one(t.last);
	ck_pattern(data(last), BYTES, 1);
	ok(cow_storage_export(last, COW_SHARE_SEALED, &fd, &before));
	close(fd);
	cow_storage_unref(last);
	cow_storage_unref(r);
	cow_storage_unref(s);
	chain_free(&t);
}
END_TEST

/* A sealed file with more bytes than the storage: in front of it, behind it, in its first or
 * its last page. It is received, but is not sent on as it is. */
START_TEST(what_has_more_is_copied)
{
	static const struct {
		size_t offset, more;
	} where[] = {
		{ 4 * PAGE, 1 * PAGE },         /* a page in front */
		{ 4 * PAGE, 4 * PAGE + BYTES + PAGE }, /* one behind */
		{ 4 * PAGE, 4 * PAGE + BYTES }, /* the rest of the last one */
		{ 4 * PAGE + 8, 4 * PAGE },     /* the start of the first one */
		{ 4 * PAGE + 8, (size_t)-1 },   /* nothing: it goes on */
	};
	size_t offset = where[_i].offset, more = where[_i].more;
	size_t all = offset + BYTES + 10 * PAGE;
	int fd = memfd_create("more", MFD_ALLOW_SEALING | MFD_CLOEXEC), out;
	struct cow_storage *s;
	unsigned char *p, *seen;
	uint64_t before, at;

	must(ftruncate(fd, (off_t)all) == 0);
	p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(p != MAP_FAILED);
	fill(p + offset, BYTES, 1);
	if (more != (size_t)-1)
		p[more] = 9;
	munmap(p, all);
	must(fcntl(fd, F_ADD_SEALS,
	           F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0);
	ok(cow_storage_import(fd, offset, BYTES, COW_SHARE_SEALED, &s));
	close(fd);
	before = copied();
	ok(cow_storage_export(s, COW_SHARE_SEALED, &out, &at));
	ck_assert_uint_eq(copied() - before, more == (size_t)-1 ? 0 : BYTES);
	/* Linux before 6.7 refuses shared mappings of what is sealed. */
	seen = mmap(NULL, BYTES + at % PAGE, PROT_READ, MAP_PRIVATE, out,
	            (off_t)(at / PAGE * PAGE));
	must(seen != MAP_FAILED);
	ck_pattern(seen + at % PAGE, BYTES, 1);
	munmap(seen, BYTES + at % PAGE);
	close(out);
	cow_storage_unref(s);
}
END_TEST

/* A clone of what the sender has is sent as its source is, before and after that. */
START_TEST(clones_of_given_blocks)
{
	struct cow_storage *s, *clone, *r[2];
	struct chain t;
	uint64_t before;

	chain_make(&t, false);
	s = made(GIVEN, 1);
	before = copied();
	if (_i & 1) {
		send_one(t.first.mine, s, COW_SHARE_CLONE);
		clone = lazy(s);
	} else {
		clone = lazy(s);
		send_one(t.first.mine, s, COW_SHARE_CLONE);
	}
	if (_i & 2)
		fill(place(s), BYTES, 2);
	if (_i & 4)
		place(clone);
	send_one(t.first.mine, clone, COW_SHARE_CLONE);
	ck_assert_uint_eq(copied(), before);
	for (int i = 0; i < 2; i++) {
		r[i] = receive_one(t.in);
		ck_pattern(data(r[i]), BYTES, 1);
	}
	ck_pattern(data(clone), BYTES, 1);
	fill(mut(clone), BYTES, 3);
	for (int i = 0; i < 2; i++) {
		ck_pattern(data(r[i]), BYTES, 1);
		cow_storage_unref(r[i]);
	}
	ck_pattern(data(s), BYTES, _i & 2 ? 2 : 1);
	cow_storage_unref(s);
	cow_storage_unref(clone);
	chain_free(&t);
}
END_TEST

/* Its source is freed, and no process maps its pages shared. */
START_TEST(clone_of_what_is_gone)
{
	struct cow_storage *s, *clone, *r;
	struct chain t;
	uint64_t before;

	chain_make(&t, false);
	s = made(GIVEN, 1);
	clone = lazy(s);
	cow_storage_unref(s);
	before = copied();
	send_one(t.first.mine, clone, COW_SHARE_CLONE);
	ck_assert_uint_eq(copied(), before);
	r = receive_one(t.in);
	fill(mut(clone), BYTES, 2);
	ck_pattern(data(r), BYTES, 1);
	cow_storage_unref(clone);
	ck_pattern(data(r), BYTES, 1);
	cow_storage_unref(r);
	chain_free(&t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("send_on");
	TCase *tcase = add_case(suite, "send_on");

	tcase_add_loop_test(tcase, received_is_cloned_by_page, 0, 4);
	tcase_add_loop_test(tcase, rewritten_is_copied, 0, 4);
	tcase_add_loop_test(tcase, received_is_sent_on, 0, 8);
	tcase_add_loop_test(tcase, given_goes_on, 0, 2);
	tcase_add_loop_test(tcase, what_has_more_is_copied, 0, 5);
	tcase_add_loop_test(tcase, clones_of_given_blocks, 0, 8);
	tcase_add_test(tcase, clone_of_what_is_gone);
	return run_suite(suite);
}
