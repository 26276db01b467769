/* SPDX-License-Identifier: MIT */
/*
 * Sealing: large blocks by address, sent as they lie
 *
 * The program knows nothing of storages: its malloc is the engine. Its block is sent
 * without a copy. It is sealed, and alone in its file. Both sides go on with it.
 */
#include "tests/support/hold.h"

#include "core/memory/commit.h"
#include "core/memory/state.h"
#include "core/cow/old_tables.h"
#include "memfd/socket.h"
#include "share/wire.h"
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 66 * 1024 * 1024 + 77 };

struct pair {
	int fd[2];
	struct cow_group *group;
	struct cow_channel *mine;
	struct gate gate, back;
};

static void pair_make(struct pair *t, bool group)
{
	*t = (struct pair){ .mine = NULL };
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, t->fd) == 0);
	if (group)
		ok(cow_group_new(&t->group));
	ok(cow_channel_new(t->fd[0], t->group, 0, &t->mine));
	gate_make(&t->gate);
	gate_make(&t->back);
}

static void pair_free(struct pair *t)
{
	cow_channel_free(t->mine);
	cow_group_unref(t->group);
	close(t->fd[0]);
	close(t->fd[1]);
	gate_free(&t->gate);
	gate_free(&t->back);
}

/* Sends all of a block; how many bytes were copied for it. */
static bool helper_is_held;

static uint64_t send_block(struct cow_channel *c, const void *p, enum cow_share_mode mode)
{
	struct cow_stats before = stats_now();
	struct cow_storage *s;
	struct cow_parcel q;
	size_t offset;
	long n;

	ok(cow_storage_from_ptr(p, &offset, &s));
	ck_assert_uint_eq(offset, 0);
	if (!helper_is_held)
		cow_threads_end(); /* a send copies if the helper works on the block for 100 ms */
	q = (struct cow_parcel){ .storage = s, .length = BYTES, .mode = mode };
	n = cow_channel_send(c, &q, 1, NULL, 0);
	ck_assert_msg(n == 1, "send gave %ld: %s", n, cow_last_error());
	cow_storage_unref(s);
	return stats_now().bytes_copied - before.bytes_copied;
}

static struct cow_storage *receive_one(struct cow_channel *c)
{
	struct cow_parcel p;
	long n = cow_channel_receive(c, &p, 1, NULL, 0, NULL);

	if (n != 1)
		ck_abort_msg("receive gave %ld: %s", n, cow_last_error());
	ck_assert_uint_eq(cow_storage_bytes(p.storage), BYTES);
	return p.storage;
}

/* The receiver has what was sent, whatever the sender does. */
static void keeps_what_came(void *arg)
{
	struct pair *t = arg;
	struct cow_channel *c;
	struct cow_storage *first, *again, *third;

	ok(cow_channel_new(t->fd[1], NULL, COW_CHANNEL_JOIN, &c));
	gate_open(&t->back);
	first = receive_one(c);
	again = receive_one(c);
	ck_pattern(data(first), BYTES, 1);
	gate_open(&t->back);
	gate_wait(&t->gate); /* the block was written */
	ck_pattern(data(first), BYTES, 1);
	third = receive_one(c);
	ck_pattern(data(again), BYTES, 1);
	/* A sealed one that comes again is another storage on the same bytes. */
	fill(mut_range(again, 0, BYTES, COW_WRITE_ALL), BYTES, 9);
	ck_pattern(data(first), BYTES, 1);
	ck_pattern(data(third), BYTES, 2);
	gate_open(&t->back);
	gate_wait(&t->gate); /* and freed, and there is another one */
	ck_pattern(data(first), BYTES, 1);
	ck_pattern(data(again), BYTES, 9);
	ck_pattern(data(third), BYTES, 2);
	cow_storage_unref(first);
	cow_storage_unref(again);
	cow_storage_unref(third);
	cow_channel_free(c);
}

START_TEST(goes_without_a_copy)
{
	enum cow_share_mode mode = _i & 1 ? COW_SHARE_SEALED : COW_SHARE_CLONE;
	unsigned char *p, *other;
	struct pair t;
	pid_t child;

	pair_make(&t, _i & 2);
	child = child_start(keeps_what_came, &t);
	gate_wait(&t.back);
	p = new_block(BYTES, 0);
	fill(p, BYTES, 1);
	ck_assert_uint_eq(send_block(t.mine, p, mode), 0);
	ck_assert_uint_eq(send_block(t.mine, p, mode), 0);
	gate_wait(&t.back);
	fill(p, BYTES, 2);
	/* What was written since is in no file. */
	ck_assert_uint_ge(send_block(t.mine, p, mode), BYTES);
	gate_open(&t.gate);
	gate_wait(&t.back);
	ck_pattern(p, BYTES, 2);
	cow_block_free(p);
	other = new_block(BYTES, 0);
	fill(other, BYTES, 3);
	gate_open(&t.gate);
	child_finish(child);
	ck_pattern(other, BYTES, 3);
	cow_block_free(other);
	pair_free(&t);
}
END_TEST

/* ---- What is exposed --------------------------------------------------------------- */

/* The file of the message that was sent, and where in it the bytes are. */
static int take_file(int socket, uint64_t *ret_offset)
{
	static uint64_t buf[COW__WIRE_BYTES / 8];
	struct cow__wire w;
	int fds[COW__WIRE_FDS];
	unsigned n;
	long r = cow__socket_get(socket, buf, sizeof(buf), fds, COW__WIRE_FDS,
	                         &n);

	must(r > 0 && cow__wire_check(buf, (size_t)r, n, &w) == 0);
	must(w.head.items == 1 && w.items[0].kind == COW__WIRE_OWN && n == 1);
	*ret_offset = w.items[0].file_offset;
	return fds[0];
}

START_TEST(exposes_its_bytes_alone)
{
	const int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;
	unsigned char *before, *p, *after, *seen;
	char path[32];
	uint64_t offset;
	struct pair t;
	int fd, again;

	pair_make(&t, false);
	before = new_block(BYTES, 0);
	fill(before, BYTES, 7);
	p = new_block(BYTES, 0);
	fill(p, BYTES, 1);
	after = new_block(BYTES, 0);
	fill(after, BYTES, 8);
	ck_assert_uint_eq(send_block(t.mine, p, COW_SHARE_CLONE), 0);
	fd = take_file(t.fd[1], &offset);
	/* Nothing before it, nothing after it, zeros to the end of the page. */
	ck_assert_int_ge(lseek(fd, 0, SEEK_DATA), (off_t)offset);
	must(lseek(fd, (off_t)(offset + BYTES + PAGE), SEEK_DATA) == -1);
	ck_assert_int_eq(errno, ENXIO);
	/* Linux before 6.7 refuses shared mappings of what is sealed. */
	seen = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, (off_t)offset);
	must(seen != MAP_FAILED);
	ck_pattern(seen, BYTES, 1);
	ck_bytes(seen + BYTES, PAGE - BYTES % PAGE, 0);
	/* Nobody writes it: neither who got it, nor who gave it. */
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & seals, seals);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	must(again >= 0);
	must(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, again, (off_t)offset) ==
	     MAP_FAILED);
	must(pwrite(again, "x", 1, (off_t)offset) == -1);
	fill(p, BYTES, 2);
	fill(before, BYTES, 3);
	fill(after, BYTES, 4);
	ck_pattern(seen, BYTES, 1);
	ck_pattern(p, BYTES, 2);
	must(lseek(fd, (off_t)(offset + BYTES + PAGE), SEEK_DATA) == -1);
	munmap(seen, BYTES);
	close(again);
	close(fd);
	cow_block_free(before);
	cow_block_free(p);
	cow_block_free(after);
	pair_free(&t);
}
END_TEST

/* What lies behind the last byte is the program's, but was not sent; and memory
 * that was there before the first channel shares its file with other memory. Both
 * go as a copy. */
START_TEST(others_are_copied)
{
	unsigned char *early = new_block(BYTES, 0), *p, *seen;
	uint64_t offset;
	struct pair t;
	int fd;

	pair_make(&t, false);
	p = early;
	if (_i) {
		p = new_block(BYTES, 0);
		memset(p + BYTES, 5, PAGE - BYTES % PAGE);
	}
	fill(p, BYTES, 1);
	ck_assert_uint_ge(send_block(t.mine, p, COW_SHARE_CLONE), BYTES);
	fd = take_file(t.fd[1], &offset);
	/* Linux before 6.7 refuses shared mappings of what is sealed. */
	seen = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, (off_t)offset);
	must(seen != MAP_FAILED);
	ck_pattern(seen, BYTES, 1);
	ck_bytes(seen + BYTES, PAGE - BYTES % PAGE, 0);
	munmap(seen, BYTES);
	close(fd);
	if (_i)
		ck_bytes(p + BYTES, PAGE - BYTES % PAGE, 5);
	if (p != early)
		cow_block_free(p);
	cow_block_free(early);
	pair_free(&t);
}
END_TEST

/* What a block that shrank left in its file will not go away: nobody waits for that, or
 * freezes the block in vain. */
START_TEST(not_beside_what_it_left)
{
	struct pair t;
	unsigned char *p;
	uint64_t freezes;
	void *shrunk;

	/* What a helper has in hand does not shrink in place. */
	ok(cow_option_set("helper", "off"));
	pair_make(&t, false);
	p = new_block(2 * (size_t)BYTES, 0);
	fill(p, 2 * (size_t)BYTES, 1);
	ok(cow_block_resize(p, BYTES, &shrunk));
	ck_assert_ptr_eq(shrunk, p);
	freezes = stats_now().freezes;
	ck_assert_uint_ge(send_block(t.mine, p, COW_SHARE_CLONE), BYTES);
	ck_assert_uint_eq(stats_now().freezes, freezes);
	ck_pattern(p, BYTES, 1);
	cow_block_free(p);
	pair_free(&t);
}
END_TEST

/* Two blocks in one file, of which one is all zeros: whoever gets that one must not get
 * the other along. */
START_TEST(not_with_a_neighbour)
{
	enum { HALF = 64 * 1024 * 1024, SINGLES = 8 };
	unsigned char *whole, *others[SINGLES], *p, *q;
	struct cow_storage *s, *zeros, *clone;
	uint64_t first, offset;
	struct pair t;
	off_t at;
	int fd;

	ok(cow_option_set("collapse", "off")); /* as on kernels that can't */
	pair_make(&t, false); /* from now on large blocks get files */
	whole = new_block(2 * HALF, 0);
	fill(whole, HALF, 8);
	for (int i = 0; i < SINGLES; i++)
		others[i] = new_block(HALF, 0);
	cow_block_free(whole);
	p = new_block(HALF, 0);
	q = new_block(HALF, COW_BLOCK_ZERO);
	ck_assert_ptr_eq(p, whole); /* no files are left */
	ck_assert_ptr_eq(q, whole + HALF);
	ok(cow_storage_from_ptr(p, NULL, &s));
	ok(cow_storage_from_ptr(q, NULL, &zeros));
	clone = lazy(zeros);
	fill(p, HALF, 1);
	ok(cow_storage_export(s, COW_SHARE_SEALED, &fd, &first));
	close(fd);
	ok(cow_storage_export(zeros, COW_SHARE_SEALED, &fd, &offset));
	at = lseek(fd, 0, SEEK_DATA);
	if (at >= 0) {
		ck_assert_int_ge(at, (off_t)offset);
		ck_assert_int_lt(at, (off_t)offset + HALF);
		ck_assert_int_ge(lseek(fd, (off_t)offset, SEEK_HOLE), at);
		ck_assert_int_lt(lseek(fd, (off_t)offset + HALF, SEEK_DATA), 0);
	}
	close(fd);
	ck_pattern(p, HALF, 1);
	ck_bytes(q, HALF, 0);
	cow_storage_unref(clone);
	cow_storage_unref(zeros);
	cow_storage_unref(s);
	cow_block_free(p);
	cow_block_free(q);
	for (int i = 0; i < SINGLES; i++)
		cow_block_free(others[i]);
	pair_free(&t);
}
END_TEST

/* ---- What the sender does then ------------------------------------------------------- */

static void child_writes(void *arg)
{
	unsigned char *p = arg;

	ck_pattern(p, BYTES, 1);
	fill(p, BYTES, 4);
	ck_pattern(p, BYTES, 4);
}

static void child_reads(void *arg)
{
	ck_pattern((unsigned char *)arg, BYTES, 1);
}

/* Clones, forks, growing, and a seal before and after. */
START_TEST(goes_on_as_any_block)
{
	unsigned char *p;
	struct cow_storage *s, *clone, *r;
	struct cow_channel *theirs;
	struct pair t;

	pair_make(&t, false);
	ok(cow_channel_new(t.fd[1], NULL, 0, &theirs));
	p = new_block(BYTES, 0);
	fill(p, BYTES, 1);
	ok(cow_storage_from_ptr(p, NULL, &s));
	clone = _i & 1 ? lazy(s) : NULL;
	ck_assert_uint_eq(send_block(t.mine, p, COW_SHARE_CLONE), 0);
	r = receive_one(theirs);
	in_child(child_writes, p);
	ck_pattern(p, BYTES, 1);
	if (_i & 2) {
		fill(p, BYTES / 2, 6);
		cow_storage_unref(clone);
		clone = lazy(s);
		ck_pattern(data(clone), BYTES / 2, 6);
	}
	fill(p, BYTES, 2);
	in_child(child_reads, (void *)(uintptr_t)data(r));
	ck_pattern(data(r), BYTES, 1);
	cow_storage_unref(s);
	if (_i & 4) {
		void *grown;

		ok(cow_block_resize(p, BYTES + 10 * MIB, &grown));
		p = grown;
	}
	ck_pattern(p, BYTES, 2);
	cow_block_free(p);
	ck_pattern(data(r), BYTES, 1);
	cow_storage_unref(clone);
	cow_storage_unref(r);
	cow_channel_free(theirs);
	pair_free(&t);
}
END_TEST

/* Its small pages stay: what is sealed is not mapped for writing any more. */
START_TEST(is_not_mended)
{
	unsigned char *p;
	struct cow__tile *t;
	struct pair pair;

	pair_make(&pair, false);
	p = new_block(BYTES, 0);
	fill(p, BYTES, 1);
	cow__engine_lock();
	t = cow__tile_find((uintptr_t)p);
	cow__engine_unlock();
	ck_assert_uint_eq(send_block(pair.mine, p, COW_SHARE_CLONE), 0);
	cow__engine_lock();
	ck_assert(t->filling.age == COW__AGE_GROWN);
	cow__engine_unlock();
	cow_block_free(p);
	pair_free(&pair);
}
END_TEST

/* Its file is kept by nobody when it is freed. */
START_TEST(ends_with_its_block)
{
	uint64_t segments;
	unsigned char *p;
	struct pair t;

	pair_make(&t, false);
	segments = stats_now().segments;
	p = new_block(BYTES, 0);
	fill(p, BYTES, 1);
	ck_assert_uint_eq(send_block(t.mine, p, COW_SHARE_CLONE), 0);
	ck_assert_uint_eq(stats_now().segments, segments + 1);
	cow__helper_suspend(); /* else it may have its hands on the block, and end it then */
	cow_block_free(p);
	ck_assert_uint_eq(stats_now().segments, segments);
	cow__helper_resume();
	pair_free(&t);
}
END_TEST

static void nothing(void *arg) { (void)arg; }

/* After a fork the helper takes old page tables down, which map the file for writing.
 * A send meanwhile does not wait for it, nor copy. */
START_TEST(while_the_helper_takes_old_tables_down)
{
	unsigned char *p;
	struct pair t;
	bool moved;

	pair_make(&t, false);
	p = new_block(BYTES, 0);
	fill(p, BYTES, 1);
	hold_bytes = 32 * 1024 * 1024; /* as much as it takes down in one go */
	hold_at(SYS_mmap, PROT_NONE);
	in_child(nothing, NULL);
	cow__engine_lock();
	moved = cow__old_tables_pending(); /* some kernels don't */
	cow__engine_unlock();
	ck_assert(!moved || wait_until(hold_is_on, NULL, 10));
	helper_is_held = moved;
	ck_assert_uint_eq(send_block(t.mine, p, COW_SHARE_CLONE), 0);
	hold_finish();
	ck_pattern(p, BYTES, 1);
	cow_block_free(p);
	pair_free(&t);
}
END_TEST

/* A program with a group will send, though it makes the channel later. */
START_TEST(born_before_the_channel)
{
	struct cow_group *group;
	unsigned char *p;
	struct pair t;

	ok(cow_group_new(&group));
	p = new_block(BYTES, 0);
	fill(p, BYTES, 1);
	pair_make(&t, false);
	ck_assert_uint_eq(send_block(t.mine, p, COW_SHARE_CLONE), 0);
	cow_block_free(p);
	pair_free(&t);
	cow_group_unref(group);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seal");
	TCase *tcase = add_case(suite, "seal");

	tcase_add_loop_test(tcase, goes_without_a_copy, 0, 4);
	tcase_add_test(tcase, exposes_its_bytes_alone);
	tcase_add_loop_test(tcase, others_are_copied, 0, 2);
	tcase_add_test(tcase, not_beside_what_it_left);
	tcase_add_test(tcase, not_with_a_neighbour);
	tcase_add_loop_test(tcase, goes_on_as_any_block, 0, 8);
	tcase_add_test(tcase, is_not_mended);
	tcase_add_test(tcase, ends_with_its_block);
	tcase_add_test(tcase, while_the_helper_takes_old_tables_down);
	tcase_add_test(tcase, born_before_the_channel);
	return run_suite(suite);
}
