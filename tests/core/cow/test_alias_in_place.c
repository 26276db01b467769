/* SPDX-License-Identifier: MIT */
/*
 * Aliases in place: memory whose address a program has, written by others, too
 *
 * Blocks and transparent storages of every kind stay where they are and what they
 * are; from then on another process writes the same bytes, and a forked child, too.
 */
#include "core/program/advise.h"
#include "tests/support/ends.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LARGE = 4 * 1024 * 1024 + 77 };

static uint64_t copied(void)
{
	return stats_now().bytes_copied;
}

static unsigned char *place(struct cow_storage *s)
{
	void *p;

	ok(cow_storage_expose(s, &p));
	return p;
}

static struct cow_storage *of_block(void *p)
{
	struct cow_storage *s;

	ok(cow_storage_from_ptr(p, NULL, &s));
	return s;
}

/* ---- Every kind ------------------------------------------------------------------- */

enum kind { BORN, PLAIN, SMALL, ANON, VIEW, THAWED, BLOCK, KINDS };

struct made {
	struct cow_storage *s, *other;
	void *block;
	size_t bytes;
};

static void nothing(void *arg)
{
	(void)arg;
}

static void make(struct made *m, enum kind kind)
{
	*m = (struct made){ .bytes = kind == SMALL ? 5000 : LARGE };
	if (kind == BORN)
		ok(cow_option_set("share", "yes"));
	if (kind == ANON)
		ok(cow_option_set("backing", "anon"));
	if (kind == BLOCK) {
		m->block = new_block(m->bytes, 0);
		m->s = of_block(m->block);
		fill(m->block, m->bytes, 1);
	} else {
		m->s = new_filled(m->bytes, COW_STORAGE_TRANSPARENT, 1);
	}
	if (kind == VIEW) {
		m->other = m->s;
		m->s = lazy(m->other);
		place(m->s);
	}
	if (kind == THAWED) /* frozen once, for a child that is gone */
		in_child(nothing, NULL);
}

static void made_free(struct made *m)
{
	if (m->other)
		ck_pattern(data(m->other), m->bytes, 1);
	cow_storage_unref(m->s);
	cow_storage_unref(m->other);
	if (m->block)
		cow_block_free(m->block);
}

static void writes_and_keeps(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	struct cow_storage *r = receive_one(c);
	unsigned char *p = mut(r);

	ck_pattern(p, t->bytes, 1);
	fill(p, t->bytes, 2);
	gate_open(&t->back);
	gate_wait(&t->gate); /* written by the other side */
	ck_pattern(p, t->bytes, 3);
	gate_open(&t->back);
	gate_wait(&t->gate); /* and freed */
	ck_pattern(p, t->bytes, 3);
	fill(p, t->bytes, 4);
	cow_storage_unref(r);
	cow_channel_free(c);
}

START_TEST(both_write)
{
	struct story t = { .mode = COW_SHARE_ALIAS };
	unsigned char *before, *after, *p;
	struct made m;
	uint64_t n;
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, SOCK_SEQPACKET, _i & 1);
	t.bytes = _i / 2 == SMALL ? 5000 : LARGE;
	child = child_start(writes_and_keeps, &t);
	before = new_block(5000, 0);
	make(&m, (enum kind)(_i / 2));
	after = new_block(5000, 0);
	fill(before, 5000, 8);
	fill(after, 5000, 9);
	p = place(m.s);
	n = copied();
	ok(cow_storage_share_in_place(m.s));
	if (_i / 2 == BORN)
		ck_assert_uint_eq(copied(), n);
	n = copied();
	ok(cow_storage_share_in_place(m.s));
	ck_assert_ptr_eq(place(m.s), p);
	ck_pattern(p, m.bytes, 1);
	send_one(t.ends.mine, m.s, COW_SHARE_ALIAS);
	ck_assert_uint_eq(copied(), n);
	gate_wait(&t.back);
	ck_pattern(p, m.bytes, 2);
	fill(p, m.bytes, 3);
	gate_open(&t.gate);
	gate_wait(&t.back);
	made_free(&m);
	/* What comes next does not show there. */
	make(&m, PLAIN);
	gate_open(&t.gate);
	child_finish(child);
	ck_pattern(data(m.s), m.bytes, 1);
	made_free(&m);
	ck_pattern(before, 5000, 8);
	ck_pattern(after, 5000, 9);
	cow_block_free(before);
	cow_block_free(after);
	ends_free(&t.ends);
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

/* ---- What else happens to it ---------------------------------------------------------- */

static void child_writes(void *arg)
{
	struct made *m = arg;

	ck_pattern(place(m->s), m->bytes, 1);
	fill(place(m->s), m->bytes, 5);
	made_free(m);
}

/* A forked child has it in common with its parent, and its grandchildren, too. */
START_TEST(common_over_forks)
{
	struct made m;

	make(&m, (enum kind)_i);
	ok(cow_storage_share_in_place(m.s));
	in_child(child_writes, &m);
	ck_pattern(place(m.s), m.bytes, 5);
	fill(place(m.s), m.bytes, 1);
	in_child(child_writes, &m);
	ck_pattern(place(m.s), m.bytes, 5);
	made_free(&m);
}
END_TEST

/* Clones of it, and messages in the other modes, are of their moment. */
START_TEST(clones_are_copies)
{
	struct cow_storage *clone, *r;
	struct cow_channel *c;
	struct made m;
	struct ends e;

	ends_make(&e, SOCK_SEQPACKET, _i & 1);
	c = child_channel(&e);
	make(&m, (enum kind)(_i / 2));
	ok(cow_storage_share_in_place(m.s));
	clone = lazy(m.s);
	send_one(e.mine, m.s, COW_SHARE_CLONE);
	fill(place(m.s), m.bytes, 2);
	r = receive_one(c);
	ck_pattern(data(r), m.bytes, 1);
	ck_pattern(data(clone), m.bytes, 1);
	fill(mut(clone), m.bytes, 3);
	ck_pattern(place(m.s), m.bytes, 2);
	cow_storage_unref(clone);
	cow_storage_unref(r);
	made_free(&m);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* A block that grows or shrinks leaves the alias, which stays whole. */
START_TEST(resized_it_moves_out)
{
	struct cow_storage *r;
	struct cow_channel *c;
	struct made m;
	struct ends e;
	void *p;

	ends_make(&e, SOCK_SEQPACKET, false);
	c = child_channel(&e);
	make(&m, BLOCK);
	ok(cow_storage_share_in_place(m.s));
	send_one(e.mine, m.s, COW_SHARE_ALIAS);
	r = receive_one(c);
	cow_storage_unref(m.s);
	m.s = NULL;
	ok(cow_block_resize(m.block, _i ? m.bytes / 2 : 2 * m.bytes, &p));
	m.block = p;
	ck_pattern(p, m.bytes / 2, 1);
	fill(p, m.bytes / 2, 2);
	ck_pattern(data(r), m.bytes, 1);
	cow_storage_unref(r);
	made_free(&m);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

static void finds_zeros(void *arg)
{
	unsigned char *p = arg;

	ck_bytes(p, PAGE, 0);
	p[0] = 7;
	ck_assert_uint_ne(p[PAGE], 0);
}

/* Wiped in a child, and in nobody else. */
START_TEST(wiped_on_fork)
{
	unsigned char *p;
	struct made m;

	make(&m, BLOCK);
	ok(cow_storage_share_in_place(m.s));
	p = place(m.s);
	memset(p, 3, 2 * PAGE);
	ok(cow__advise((uintptr_t)p, PAGE, MADV_WIPEONFORK));
	in_child(finds_zeros, p);
	ck_bytes(p, 2 * PAGE, 3);
	made_free(&m);
}
END_TEST

static void waits(void *arg)
{
	gate_wait(arg);
}

START_TEST(refused)
{
	struct cow_storage *s, *clone;
	struct gate gate;
	pid_t child;

	fails(-EINVAL, cow_storage_share_in_place(NULL));
	s = new_filled(LARGE, 0, 1);
	fails(-EOPNOTSUPP, cow_storage_share_in_place(s));
	place(s);
	/* A clone reads its pages. */
	clone = lazy(s);
	fails(-EBUSY, cow_storage_share_in_place(s));
	cow_storage_unref(clone);
	/* A child does. */
	gate_make(&gate);
	child = child_start(waits, &gate);
	fails(-EBUSY, cow_storage_share_in_place(s));
	ck_pattern(data(s), LARGE, 1);
	gate_open(&gate);
	child_finish(child);
	ok(cow_storage_share_in_place(s));
	ck_pattern(data(s), LARGE, 1);
	cow_storage_unref(s);
	gate_free(&gate);
}
END_TEST

/* Bytes in all memfds of the engine's blocks. */
static size_t in_files(void)
{
	char path[32], name[64];
	size_t all = 0;

	for (int fd = 0; fd < 2048; fd++) {
		struct stat st;
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name) - 1);
		name[n > 0 ? n : 0] = '\0';
		if (strncmp(name, "/memfd:cowshed ", 15) == 0 &&
		    fstat(fd, &st) == 0)
			all += (size_t)st.st_blocks * 512;
	}
	return all;
}

/* The pages that it left are given back, and those around it stay. */
START_TEST(old_pages_are_freed)
{
	unsigned char *p[3];
	struct cow_storage *s;
	size_t before;

	for (int i = 0; i < 3; i++) {
		p[i] = new_block(LARGE, 0);
		fill(p[i], LARGE, (uint64_t)i);
	}
	s = of_block(p[1]);
	before = in_files();
	ck_assert_uint_ge(before, 3 * (size_t)LARGE);
	ok(cow_storage_share_in_place(s));
	ck_assert_uint_lt(in_files(), before + LARGE / 2);
	for (int i = 0; i < 3; i++)
		ck_pattern(p[i], LARGE, (uint64_t)i);
	in_child(nothing, NULL);
	cow_storage_unref(s);
	cow_block_free(p[1]);
	p[1] = new_block(LARGE, COW_BLOCK_ZERO);
	ck_bytes(p[1], LARGE, 0);
	for (int i = 0; i < 3; i += 2)
		ck_pattern(p[i], LARGE, (uint64_t)i);
	for (int i = 0; i < 3; i++)
		cow_block_free(p[i]);
}
END_TEST

/* What the program gives back of it reads as zero, for all who have it; what it unmaps
 * stays with the others. */
START_TEST(given_back_in_part)
{
	unsigned char *p, *seen; /* by another process, which maps the file */
	uint64_t offset;
	struct made m;
	size_t bytes;
	int fd;

	make(&m, _i == SMALL ? PLAIN : (enum kind)_i);
	ok(cow_storage_share_in_place(m.s));
	ok(cow_storage_export(m.s, COW_SHARE_ALIAS, &fd, &offset));
	bytes = cow_storage_bytes(m.s);
	seen = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)offset);
	must(seen != MAP_FAILED);
	close(fd);
	p = place(m.s);
	ok(cow__advise((uintptr_t)p + PAGE, PAGE, MADV_DONTNEED));
	ck_bytes(p + PAGE, PAGE, 0);
	ck_bytes(seen + PAGE, PAGE, 0);
	p[PAGE] = 7;
	ck_assert_uint_eq(seen[PAGE], 7);
	memset(p + 2 * PAGE, 5, PAGE);
	ok(cow__unmap((uintptr_t)p + 2 * PAGE, PAGE));
	ck_bytes(seen + 2 * PAGE, PAGE, 5);
	/* A pipe may have these very pages (vmsplice): they stay common. */
	ck_assert_int_eq(cow__own((uintptr_t)p + 3 * PAGE, PAGE, COW__OWN_TO_MOVE), -EBUSY);
	p[3 * PAGE] = 9;
	ck_assert_uint_eq(seen[3 * PAGE], 9);
	munmap(seen, bytes);
	made_free(&m);
}
END_TEST

/* Addresses and mappings serve again. */
START_TEST(nothing_piles_up)
{
	uint64_t mappings = 0;
	struct made m;

	for (int i = 0; i < 40; i++) {
		make(&m, (enum kind)_i);
		ok(cow_storage_share_in_place(m.s));
		made_free(&m);
		if (i == 8) {
			cow_trim();
			mappings = stats_now().mappings;
		}
	}
	cow_trim();
	ck_assert_uint_le(stats_now().mappings, mappings + 4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alias_in_place");
	TCase *tcase = add_case(suite, "alias_in_place");

	tcase_add_loop_test(tcase, both_write, 0, 2 * KINDS);
	tcase_add_loop_test(tcase, common_over_forks, 0, KINDS);
	tcase_add_loop_test(tcase, clones_are_copies, 0, 2 * KINDS);
	tcase_add_loop_test(tcase, resized_it_moves_out, 0, 2);
	tcase_add_loop_test(tcase, given_back_in_part, 0, KINDS);
	tcase_add_test(tcase, wiped_on_fork);
	tcase_add_test(tcase, refused);
	tcase_add_test(tcase, old_pages_are_freed);
	tcase_add_loop_test(tcase, nothing_piles_up, 0, KINDS);
	return run_suite(suite);
}
