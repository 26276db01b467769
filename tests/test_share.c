/* SPDX-License-Identifier: MIT */
/*
 * Storages in several processes: modes, groups, death
 *
 * A pair of sockets, one end in the test and one in a child, or both in the test.
 * Every mode is sent with a group and without, over streams and packets, blocking
 * and not.
 */
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const enum cow_share_mode modes[] = { COW_SHARE_ALIAS, COW_SHARE_CLONE,
	                                     COW_SHARE_SEALED };
static const size_t sizes[] = { 0,    1,       511,     512,     513,
	                        4096, 5000,    MIB - 1, MIB + 3, 9 * MIB };

struct ends {
	int fd[2];
	struct cow_group *group;
	struct cow_channel *mine;
};

static void ends_make(struct ends *e, int type, bool grouped)
{
	must(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, e->fd) == 0);
	e->group = NULL;
	if (grouped)
		ok(cow_group_new(&e->group));
	ok(cow_channel_new(e->fd[0], e->group, COW_CHANNEL_TAKE_ALIASES,
	                   &e->mine));
}

static void ends_free(struct ends *e)
{
	cow_channel_free(e->mine);
	cow_group_unref(e->group);
	close(e->fd[0]);
	if (e->fd[1] >= 0)
		close(e->fd[1]);
}

static struct cow_parcel parcel(struct cow_storage *s, enum cow_share_mode mode)
{
	return (struct cow_parcel){
		.storage = s,
		.length = cow_storage_bytes(s),
		.mode = mode,
	};
}

static void send_one(struct cow_channel *c, struct cow_storage *s,
                     enum cow_share_mode mode)
{
	struct cow_parcel p = parcel(s, mode);
	long n = cow_channel_send(c, &p, 1, NULL, 0);

	if (n != 1)
		ck_abort_msg("send gave %ld: %s", n, cow_last_error());
}

static struct cow_storage *receive_one(struct cow_channel *c)
{
	struct cow_parcel p;
	long n = cow_channel_receive(c, &p, 1, NULL, 0, NULL);

	if (n != 1)
		ck_abort_msg("receive gave %ld: %s", n, cow_last_error());
	return p.storage;
}

static struct cow_channel *child_channel(struct ends *e)
{
	struct cow_channel *c;

	ok(cow_channel_new(e->fd[1], NULL,
	                   COW_CHANNEL_JOIN | COW_CHANNEL_TAKE_ALIASES, &c));
	return c;
}

/* ---- Every mode ------------------------------------------------------------ */

struct story {
	struct ends ends;
	struct gate gate, back;
	size_t bytes;
	enum cow_share_mode mode;
};

/* Receives, checks, writes, and tells what it wrote. */
static void receiver(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	struct cow_storage *s = receive_one(c);

	ck_assert_uint_eq(cow_storage_bytes(s), t->bytes);
	ck_pattern(data(s), t->bytes, 7);
	gate_open(&t->back);
	gate_wait(&t->gate);
	/* The other side has written by now. */
	if (t->mode == COW_SHARE_ALIAS)
		ck_pattern(data(s), t->bytes, 8);
	else
		ck_pattern(data(s), t->bytes, 7);
	fill(mut(s), t->bytes, 9);
	gate_open(&t->back);
	gate_wait(&t->gate);
	ck_pattern(data(s), t->bytes, 9);
	cow_storage_unref(s);
	cow_channel_free(c);
}

static void all_of(int type, bool grouped, enum cow_share_mode mode, size_t bytes)
{
	struct story t = { .bytes = bytes, .mode = mode };
	struct cow_storage *s = new_filled(bytes, 0, 7);
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, type, grouped);
	child = child_start(receiver, &t);
	send_one(t.ends.mine, s, mode);
	gate_wait(&t.back);
	fill(mut(s), bytes, 8);
	gate_open(&t.gate);
	gate_wait(&t.back);
	ck_pattern(data(s), bytes, mode == COW_SHARE_ALIAS ? 9 : 8);
	gate_open(&t.gate);
	child_finish(child);
	cow_storage_unref(s);
	ends_free(&t.ends);
	gate_free(&t.gate);
	gate_free(&t.back);
}

START_TEST(every_mode_and_size)
{
	for (size_t i = 0; i < COUNT(sizes); i++)
		all_of(_i & 1 ? SOCK_SEQPACKET : SOCK_STREAM, _i & 2,
		       modes[_i / 4], sizes[i]);
}
END_TEST

/* ---- Who goes first ------------------------------------------------------------ */

static void sender_that_exits(void *arg)
{
	struct ends *e = arg;
	struct cow_channel *c = child_channel(e);
	struct cow_group *group = NULL;
	struct cow_storage *s = new_filled(MIB + 5, 0, 3);

	if (e->group) {
		int fd;

		ok(cow_group_fd(e->group, &fd));
		ok(cow_group_join(fd, &group));
		close(fd);
		cow_channel_free(c);
		ok(cow_channel_new(e->fd[1], group, 0, &c));
	}
	for (size_t i = 0; i < COUNT(modes); i++)
		send_one(c, s, modes[i]);
	kill(getpid(), SIGKILL);
}

START_TEST(sender_is_killed_right_after_sending)
{
	struct ends e;
	pid_t child;

	ends_make(&e, SOCK_STREAM, _i);
	child = child_start(sender_that_exits, &e);
	ck_assert_int_eq(child_status(child), SIGKILL);
	close(e.fd[1]);
	e.fd[1] = -1;
	for (size_t i = 0; i < COUNT(modes); i++) {
		struct cow_storage *s = receive_one(e.mine);

		ck_pattern(data(s), MIB + 5, 3);
		fill(mut(s), MIB + 5, 4);
		ck_pattern(data(s), MIB + 5, 4);
		cow_storage_unref(s);
	}
	fails(-EPIPE, (int)cow_channel_receive(e.mine, &(struct cow_parcel){ 0 },
	                                       1, NULL, 0, NULL));
	ends_free(&e);
}
END_TEST

struct chain {
	struct ends ab, bc;
	struct gate gate;
	bool written;
	enum cow_share_mode mode;
};

static void chain_a(void *arg)
{
	struct chain *t = arg;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(3 * MIB, 0, 1);

	ok(cow_channel_new(t->ab.fd[1], t->ab.group, 0, &c));
	send_one(c, s, t->mode);
	pause();
}

static void chain_c(void *arg)
{
	struct chain *t = arg;
	struct cow_channel *c = child_channel(&t->bc);
	struct cow_storage *s = receive_one(c);

	ck_pattern(data(s), 3 * MIB, t->written ? 2 : 1);
	cow_storage_unref(s);
	cow_channel_free(c);
}

/* A shares with B, A is killed, B shares with C: also what B has written. */
START_TEST(received_is_sent_on_after_its_creator_was_killed)
{
	struct chain t = { .written = _i & 1, .mode = modes[_i / 4] };
	bool grouped = _i & 2;
	struct cow_storage *s;
	pid_t a, c;

	ends_make(&t.ab, SOCK_STREAM, grouped);
	ends_make(&t.bc, SOCK_STREAM, false);
	cow_channel_free(t.bc.mine);
	ok(cow_channel_new(t.bc.fd[0], t.ab.group, 0, &t.bc.mine));
	a = child_start(chain_a, &t);
	s = receive_one(t.ab.mine);
	kill(a, SIGKILL);
	(void)child_status(a);
	if (t.written)
		fill(mut(s), 3 * MIB, 2);
	c = child_start(chain_c, &t);
	send_one(t.bc.mine, s, t.mode);
	child_finish(c);
	cow_storage_unref(s);
	ends_free(&t.bc);
	ends_free(&t.ab);
}
END_TEST

/* ---- Counting --------------------------------------------------------------------- */

START_TEST(received_twice_is_one_storage)
{
	struct ends e;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(100 * KIB, 0, 1), *a, *b;

	ends_make(&e, SOCK_STREAM, _i & 1);
	c = child_channel(&e);
	send_one(e.mine, s, modes[_i / 2]);
	send_one(e.mine, s, modes[_i / 2]);
	a = receive_one(c);
	b = receive_one(c);
	ck_assert_ptr_eq(data(a), data(b));
	if (modes[_i / 2] == COW_SHARE_CLONE)
		ck_assert_ptr_ne(a, b);
	else
		ck_assert_ptr_eq(a, b);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

static void drops(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	struct cow_storage *s = receive_one(c);

	gate_open(&t->back);
	gate_wait(&t->gate);
	cow_storage_unref(s);
	gate_open(&t->back);
	gate_wait(&t->gate);
	cow_channel_free(c);
}

static void is_killed(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);

	(void)receive_one(c);
	gate_open(&t->back);
	gate_wait(&t->gate);
	kill(getpid(), SIGKILL);
}

static void never_receives(void *arg)
{
	struct story *t = arg;

	gate_open(&t->back);
	gate_wait(&t->gate);
	kill(getpid(), SIGKILL);
}

/* The last holder in the system writes in place again. */
START_TEST(last_holder_writes_in_place)
{
	static child_fn *const ends[] = { drops, is_killed, never_receives };
	struct story t = { .bytes = 2 * MIB };
	struct cow_storage *s;
	const void *before;
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, SOCK_STREAM, true);
	child = child_start(ends[_i], &t);
	ok(cow_group_storage_new(t.ends.group, t.bytes, COW_SHARE_CLONE, &s));
	fill(mut(s), t.bytes, 1);
	before = data(s);
	send_one(t.ends.mine, s, COW_SHARE_CLONE);
	gate_wait(&t.back);
	ck_assert_int_eq(state_of(s), COW_STATE_LAZY);
	gate_open(&t.gate);
	if (_i == 0) {
		gate_wait(&t.back);
	} else {
		(void)child_status(child);
		/* What is in the queue is held by the queue. */
		cow_channel_free(t.ends.mine);
		close(t.ends.fd[0]);
		close(t.ends.fd[1]);
	}
	fill(mut(s), t.bytes, 2);
	ck_assert_ptr_eq(data(s), before);
	ck_pattern(data(s), t.bytes, 2);
	cow_storage_unref(s);
	if (_i == 0) {
		gate_open(&t.gate);
		child_finish(child);
		ends_free(&t.ends);
	} else {
		cow_group_unref(t.ends.group);
	}
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

/* ---- Many --------------------------------------------------------------------------- */

#define MANY 6000

static long count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	long n = 0;

	must(d != NULL);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void many_arrive(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	static struct cow_storage *all[MANY];
	long fds = count_fds(), got = 0;

	while (got < MANY) {
		struct cow_parcel p[100];
		long n = cow_channel_receive(c, p, 100, NULL, 0, NULL);

		if (n < 0)
			ck_abort_msg("receive: %s", cow_last_error());
		for (long i = 0; i < n; i++)
			all[got++] = p[i].storage;
	}
	for (int i = 0; i < MANY; i++)
		ck_pattern(data(all[i]), PAGE, (uint64_t)i);
	ck_assert_int_lt(count_fds() - fds, 64);
	gate_open(&t->back);
	gate_wait(&t->gate);
	/* Each can go alone; the others stay what they are. */
	for (int i = 0; i < MANY; i += 2)
		cow_storage_unref(all[i]);
	for (int i = 1; i < MANY; i += 2)
		ck_pattern(data(all[i]), PAGE, (uint64_t)i);
	gate_open(&t->back);
	gate_wait(&t->gate);
	for (int i = 1; i < MANY; i += 2)
		cow_storage_unref(all[i]);
	cow_channel_free(c);
}

START_TEST(thousands_of_small_ones)
{
	static struct cow_storage *all[MANY];
	static struct cow_parcel p[MANY];
	struct story t = { .bytes = 0 };
	pid_t child;
	long done = 0;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, _i ? SOCK_SEQPACKET : SOCK_STREAM, true);
	child = child_start(many_arrive, &t);
	for (int i = 0; i < MANY; i++) {
		ok(cow_group_storage_new(t.ends.group, PAGE, COW_SHARE_CLONE,
		                         &all[i]));
		fill(mut(all[i]), PAGE, (uint64_t)i);
		p[i] = parcel(all[i], COW_SHARE_CLONE);
	}
	while (done < MANY) {
		long n = cow_channel_send(t.ends.mine, p + done,
		                          (size_t)(MANY - done), NULL, 0);

		if (n <= 0)
			ck_abort_msg("send: %s", cow_last_error());
		done += n;
	}
	for (int i = 0; i < MANY; i++)
		cow_storage_unref(all[i]);
	gate_wait(&t.back);
	gate_open(&t.gate);
	gate_wait(&t.back);
	gate_open(&t.gate);
	child_finish(child);
	ends_free(&t.ends);
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

/* ---- Sockets that do not block, notes, limits ------------------------------------------ */

START_TEST(half_sent_and_half_received)
{
	struct ends e;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(300, 0, 5);
	struct cow_parcel p = parcel(s, COW_SHARE_CLONE), q[8];
	char note[] = "and this", back[16];
	size_t sent = 0, got = 0, notes = 0, note_bytes;
	int small = 4096;
	long n;

	ends_make(&e, _i ? SOCK_SEQPACKET : SOCK_STREAM, false);
	c = child_channel(&e);
	fcntl(e.fd[0], F_SETFL, O_NONBLOCK);
	fcntl(e.fd[1], F_SETFL, O_NONBLOCK);
	setsockopt(e.fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	fails(-EAGAIN, (int)cow_channel_receive(c, q, 8, NULL, 0, NULL));
	while (got < 1000) {
		while (sent < 1000) {
			n = cow_channel_send(e.mine, &p, 1, note, sizeof(note));
			if (n == -EAGAIN)
				break;
			ck_assert_int_eq(n, 1);
			sent++;
		}
		for (;;) {
			n = cow_channel_receive(c, q, 8, back, sizeof(back),
			                        &note_bytes);
			if (n == -EAGAIN)
				break;
			ck_assert_int_eq(n, 1);
			ck_pattern(data(q[0].storage), 300, 5);
			cow_storage_unref(q[0].storage);
			ck_assert_uint_eq(note_bytes, sizeof(note));
			ck_assert_str_eq(back, note);
			notes++;
			got++;
		}
		if (sent == 1000)
			(void)cow_channel_flush(e.mine);
	}
	ck_assert_uint_eq(notes, 1000);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* With no descriptor left for what came nothing is lost. */
START_TEST(no_descriptors_left)
{
	struct ends e;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(100 * KIB, 0, 6), *r;
	struct cow_parcel q;
	struct rlimit was, none;
	int lowest;

	ends_make(&e, _i & 1 ? SOCK_SEQPACKET : SOCK_STREAM, _i & 2);
	c = child_channel(&e);
	send_one(e.mine, s, COW_SHARE_CLONE);
	lowest = dup(0);
	close(lowest);
	getrlimit(RLIMIT_NOFILE, &was);
	none = was;
	none.rlim_cur = (rlim_t)lowest;
	setrlimit(RLIMIT_NOFILE, &none);
	fails(-EMFILE, (int)cow_channel_receive(c, &q, 1, NULL, 0, NULL));
	fails(-EMFILE, (int)cow_channel_receive(c, &q, 1, NULL, 0, NULL));
	setrlimit(RLIMIT_NOFILE, &was);
	r = receive_one(c);
	ck_pattern(data(r), 100 * KIB, 6);
	cow_storage_unref(r);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

START_TEST(views_travel_as_storage_and_offset)
{
	struct ends e;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(64 * KIB, 0, 1);
	struct cow_parcel p[3], q[3];

	ends_make(&e, SOCK_STREAM, _i);
	c = child_channel(&e);
	for (int i = 0; i < 3; i++) {
		p[i] = parcel(s, COW_SHARE_SEALED);
		p[i].offset = (uint64_t)i * 1000;
		p[i].length = 500;
	}
	ck_assert_int_eq(cow_channel_send(e.mine, p, 3, NULL, 0), 3);
	ck_assert_int_eq(cow_channel_receive(c, q, 3, NULL, 0, NULL), 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_ptr_eq(q[i].storage, q[0].storage);
		ck_assert_uint_eq(q[i].offset, p[i].offset);
		ck_assert_uint_eq(q[i].length, 500);
		cow_storage_unref(q[i].storage);
	}
	p[0].offset = 64 * KIB + 1;
	fails(-EINVAL, (int)cow_channel_send(e.mine, p, 1, NULL, 0));
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* ---- fork ----------------------------------------------------------------------------- */

struct forked {
	struct ends ends;
	struct cow_storage *alias, *clone, *owned;
	struct gate gate, back;
};

static void forked_child(void *arg)
{
	struct forked *t = arg;
	struct cow_parcel p = parcel(t->clone, COW_SHARE_CLONE);

	fails(-EPERM, (int)cow_channel_send(t->ends.mine, &p, 1, NULL, 0));
	gate_wait(&t->gate);
	ck_pattern(data(t->alias), MIB, 11);
	ck_pattern(data(t->clone), MIB, 2);
	ck_pattern(data(t->owned), MIB, 3);
	fill(mut(t->alias), MIB, 21);
	fill(mut(t->clone), MIB, 22);
	fill(mut(t->owned), MIB, 23);
	gate_open(&t->back);
	gate_wait(&t->gate);
	ck_pattern(data(t->clone), MIB, 22);
	ck_pattern(data(t->owned), MIB, 23);
}

START_TEST(fork_isolates_all_but_aliases)
{
	struct forked t;
	unsigned char *owned;
	struct cow_channel *c;
	struct cow_storage *r;
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, SOCK_STREAM, true);
	ok(cow_group_storage_new(t.ends.group, MIB, COW_SHARE_ALIAS, &t.alias));
	ok(cow_group_storage_new(t.ends.group, MIB, COW_SHARE_CLONE, &t.clone));
	ok(cow_group_storage_new(t.ends.group, MIB, COW_SHARE_CLONE, &t.owned));
	fill(mut(t.alias), MIB, 1);
	fill(mut(t.clone), MIB, 2);
	owned = mut(t.owned);
	fill(owned, MIB, 3);
	c = child_channel(&t.ends);
	send_one(t.ends.mine, t.clone, COW_SHARE_CLONE);
	child = child_start(forked_child, &t);
	fill(mut(t.alias), MIB, 11);
	fill(mut(t.clone), MIB, 12);
	fill(owned, MIB, 13); /* the pointer from before is good still */
	gate_open(&t.gate);
	gate_wait(&t.back);
	ck_pattern(data(t.alias), MIB, 21);
	ck_pattern(data(t.clone), MIB, 12);
	ck_pattern(data(t.owned), MIB, 13);
	gate_open(&t.gate);
	child_finish(child);
	/* What was sent before, and what is sent now. */
	r = receive_one(c);
	ck_pattern(data(r), MIB, 2);
	cow_storage_unref(r);
	send_one(t.ends.mine, t.owned, COW_SHARE_CLONE);
	r = receive_one(c);
	ck_pattern(data(r), MIB, 13);
	cow_storage_unref(r);
	cow_storage_unref(t.alias);
	cow_storage_unref(t.clone);
	cow_storage_unref(t.owned);
	cow_channel_free(c);
	ends_free(&t.ends);
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

/* ---- Descriptors ------------------------------------------------------------------------- */

START_TEST(exported_and_imported)
{
	size_t bytes = sizes[_i / 3];
	enum cow_share_mode mode = modes[_i % 3];
	struct cow_storage *s = new_filled(bytes, 0, 1), *r;
	uint64_t offset;
	int fd;

	if (bytes == 0) {
		fails(-EINVAL, cow_storage_export(s, mode, &fd, &offset));
		cow_storage_unref(s);
		return;
	}
	ok(cow_storage_export(s, mode, &fd, &offset));
	ok(cow_storage_import(fd, offset, bytes, mode, &r));
	ck_pattern(data(r), bytes, 1);
	fill(mut(r), bytes, 2);
	ck_pattern(data(s), bytes, mode == COW_SHARE_ALIAS ? 2 : 1);
	if (mode != COW_SHARE_ALIAS)
		ck_assert_int_lt((int)write(fd, "x", 1), 0);
	fails(-EINVAL, cow_storage_import(fd, offset, bytes + 1, mode, &r));
	close(fd);
	cow_storage_unref(r);
	cow_storage_unref(s);
	fails(-EBADMSG, cow_storage_import(0, 0, 1, mode, &r));
}
END_TEST

static void finds_it_is_not_its_own(void *arg)
{
	struct ends *e = arg;

	fails(-EPERM, (int)cow_channel_send(e->mine, NULL, 0, "x", 1));
	fails(-EPERM, (int)cow_channel_receive(e->mine, NULL, 0, NULL, 0, NULL));
}

/* Also where there never was a group. */
START_TEST(a_channel_is_not_the_childs)
{
	struct ends e;

	ends_make(&e, SOCK_STREAM, _i);
	in_child(finds_it_is_not_its_own, &e);
	ends_free(&e);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share");
	TCase *tcase = add_case(suite, "share");

	tcase_add_loop_test(tcase, every_mode_and_size, 0, 12);
	tcase_add_loop_test(tcase, sender_is_killed_right_after_sending, 0, 2);
	tcase_add_loop_test(tcase,
	                    received_is_sent_on_after_its_creator_was_killed, 0,
	                    12);
	tcase_add_loop_test(tcase, received_twice_is_one_storage, 0, 6);
	tcase_add_loop_test(tcase, last_holder_writes_in_place, 0, 3);
	tcase_add_loop_test(tcase, thousands_of_small_ones, 0, 2);
	tcase_add_loop_test(tcase, half_sent_and_half_received, 0, 2);
	tcase_add_loop_test(tcase, no_descriptors_left, 0, 4);
	tcase_add_loop_test(tcase, views_travel_as_storage_and_offset, 0, 2);
	tcase_add_test(tcase, fork_isolates_all_but_aliases);
	tcase_add_loop_test(tcase, exported_and_imported, 0,
	                    3 * COUNT(sizes));
	tcase_add_loop_test(tcase, a_channel_is_not_the_childs, 0, 2);
	return run_suite(suite);
}
