/* SPDX-License-Identifier: MIT */
/*
 * Sealing, where the program asked for it (the option `share`)
 *
 * Blocks and transparent storages of a few MiB get segments of their own, before there
 * is any channel. They are many at a time, in memory that was used before, and forked
 * children live meanwhile.
 */
#include "tests/support/ends.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { BYTES = 4 * 1024 * 1024 + 77 };

static uint64_t copied(void)
{
	return stats_now().bytes_copied;
}

/* Asks, and makes a pair of channels; the receiver is this process, too. */
static struct cow_channel *begin(struct ends *e, bool grouped)
{
	struct cow_channel *c;

	ok(cow_option_set("share", "yes"));
	ends_make(e, SOCK_SEQPACKET, grouped);
	ok(cow_channel_new(e->fd[1], e->group, 0, &c));
	return c;
}

static void end(struct ends *e, struct cow_channel *c)
{
	cow_channel_free(c);
	ends_free(e);
}

/* Where the bytes of a transparent storage are. */
static unsigned char *place(struct cow_storage *s)
{
	void *p;

	ok(cow_storage_expose(s, &p));
	return p;
}

/* The file that a storage goes out in has `bytes` bytes of it, of the pattern `seed`,
 * and no other data. */
static void shows_alone(struct cow_storage *s, size_t bytes, uint64_t seed)
{
	unsigned char *seen;
	uint64_t offset;
	off_t at;
	int fd;

	ok(cow_storage_export(s, COW_SHARE_SEALED, &fd, &offset));
	at = lseek(fd, 0, SEEK_DATA);
	ck_assert_int_ge(at, (off_t)(offset / PAGE * PAGE));
	at = lseek(fd, (off_t)((offset + bytes + PAGE - 1) / PAGE * PAGE),
	           SEEK_DATA);
	ck_assert_int_eq(at, -1);
	/* Linux before 6.7 refuses shared mappings of what is sealed. */
	seen = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, (off_t)offset);
	must(seen != MAP_FAILED);
	ck_pattern(seen, bytes, seed);
	ck_bytes(seen + bytes, PAGE - bytes % PAGE, 0);
	munmap(seen, bytes);
	close(fd);
}

/* ---- Which, and how many ---------------------------------------------------------- */

START_TEST(many_at_a_time)
{
	enum { MANY = 40 };
	struct cow_storage *s[MANY], *r[MANY];
	uint64_t before = copied();
	struct cow_channel *c;
	struct ends e;

	ok(cow_option_set("share", "yes"));
	for (int i = 0; i < MANY; i++)
		s[i] = new_filled(BYTES, COW_STORAGE_TRANSPARENT, (uint64_t)i);
	c = begin(&e, _i);
	for (int i = 0; i < MANY; i++) {
		send_one(e.mine, s[i], COW_SHARE_CLONE);
		r[i] = receive_one(c);
		fill(place(s[i]), PAGE, 99);
	}
	ck_assert_uint_eq(copied(), before);
	for (int i = 0; i < MANY; i++) {
		cow_storage_unref(s[i]);
		ck_pattern(data(r[i]), BYTES, (uint64_t)i);
		cow_storage_unref(r[i]);
	}
	end(&e, c);
}
END_TEST

START_TEST(not_if_nobody_asked)
{
	struct cow_storage *s;
	uint64_t before;
	struct ends e;

	ends_make(&e, SOCK_SEQPACKET, false);
	ok(cow_option_set("share", "yes"));
	ok(cow_option_set("share", "no"));
	s = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 1);
	before = copied();
	send_one(e.mine, s, COW_SHARE_CLONE);
	ck_assert_uint_ge(copied(), before + BYTES);
	cow_storage_unref(s);
	ends_free(&e);
	fails(-EINVAL, cow_option_set("share", "perhaps"));
}
END_TEST

/* A program that may have few descriptors keeps most of them. */
START_TEST(few_descriptors)
{
	enum { MANY = 60, LIMIT = 64 };
	struct cow_storage *s[MANY];
	struct rlimit was, few;
	uint64_t before;
	int fd;

	ok(cow_option_set("share", "yes"));
	must(getrlimit(RLIMIT_NOFILE, &was) == 0);
	few = was;
	few.rlim_cur = LIMIT;
	must(setrlimit(RLIMIT_NOFILE, &few) == 0);
	for (int i = 0; i < MANY; i++)
		s[i] = new_filled(BYTES, COW_STORAGE_TRANSPARENT, (uint64_t)i);
	fd = dup(0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_lt(fd, LIMIT / 2);
	close(fd);
	must(setrlimit(RLIMIT_NOFILE, &was) == 0);
	before = copied();
	shows_alone(s[0], BYTES, 0);
	ck_assert_uint_eq(copied(), before);
	shows_alone(s[MANY - 1], BYTES, MANY - 1);
	ck_assert_uint_ge(copied(), before + BYTES);
	for (int i = 0; i < MANY; i++)
		cow_storage_unref(s[i]);
}
END_TEST

/* Freed memory serves again, for sizes down to the half; neither what lay behind nor
 * what was in the rest of the last page goes along. */
START_TEST(in_used_memory)
{
	static const size_t sizes_of[] = { 2 * BYTES, 2 * BYTES - 50,
		                           BYTES + 99 };
	unsigned char *block, *at;
	struct cow_storage *s;
	uint64_t before;

	ok(cow_option_set("share", "yes"));
	block = new_block(2 * BYTES, 0);
	at = block;
	memset(block, 0xee, (2 * (size_t)BYTES + PAGE - 1) / PAGE * PAGE);
	cow_block_free(block);
	s = new_filled(sizes_of[_i], COW_STORAGE_TRANSPARENT, 3);
	ck_assert_ptr_eq(data(s), at);
	before = copied();
	shows_alone(s, sizes_of[_i], 3);
	ck_assert_uint_eq(copied(), before);
	cow_storage_unref(s);
}
END_TEST

/* ---- Forks -------------------------------------------------------------------------- */

struct story_of_fork {
	struct cow_storage *s;
	struct gate gate, back;
};

static void keeps_its_bytes(void *arg)
{
	struct story_of_fork *t = arg;

	gate_wait(&t->gate); /* sealed, and written by the parent */
	ck_pattern(data(t->s), BYTES, 1);
	fill(place(t->s), BYTES / 2, 7);
	ck_pattern(data(t->s), BYTES / 2, 7);
	gate_open(&t->back);
	gate_wait(&t->gate); /* freed by the parent */
	fill(place(t->s), BYTES, 8);
	ck_pattern(data(t->s), BYTES, 8);
	cow_storage_unref(t->s);
}

/* What a child inherited can be sealed as well: nobody writes those pages. */
START_TEST(while_children_live)
{
	struct story_of_fork t;
	struct cow_storage *r, *later;
	struct cow_channel *c;
	uint64_t before;
	struct ends e;
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	c = begin(&e, _i);
	t.s = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 1);
	child = child_start(keeps_its_bytes, &t);
	before = copied();
	later = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 2);
	send_one(e.mine, t.s, COW_SHARE_CLONE);
	r = receive_one(c);
	ck_assert_uint_eq(copied(), before);
	fill(place(t.s), BYTES, 5);
	gate_open(&t.gate);
	gate_wait(&t.back);
	ck_pattern(data(r), BYTES, 1);
	ck_pattern(data(t.s), BYTES, 5);
	cow_storage_unref(t.s);
	gate_open(&t.gate);
	child_finish(child);
	ck_pattern(data(r), BYTES, 1);
	before = copied();
	shows_alone(later, BYTES, 2);
	ck_assert_uint_eq(copied(), before);
	cow_storage_unref(later);
	cow_storage_unref(r);
	end(&e, c);
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

static void nothing(void *arg)
{
	(void)arg;
}

/* A block that was not sealed is written in place again once the children are gone. */
START_TEST(thaws_when_children_are_gone)
{
	struct cow_storage *s;
	struct cow_stats before;

	ok(cow_option_set("share", "yes"));
	s = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 1);
	in_child(nothing, NULL);
	before = stats_now();
	cow_trim(); /* a quiet moment */
	in_child(nothing, NULL);
	if (!UNDER_TSAN) /* its own thread is never quiet */
		ck_assert_uint_gt(stats_now().bytes_thawed, before.bytes_thawed);
	ck_pattern(data(s), BYTES, 1);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seal_asked");
	TCase *tcase = add_case(suite, "seal_asked");

	tcase_add_loop_test(tcase, many_at_a_time, 0, 2);
	tcase_add_test(tcase, not_if_nobody_asked);
	tcase_add_test(tcase, few_descriptors);
	tcase_add_loop_test(tcase, in_used_memory, 0, 3);
	tcase_add_loop_test(tcase, while_children_live, 0, 2);
	tcase_add_test(tcase, thaws_when_children_are_gone);
	return run_suite(suite);
}
