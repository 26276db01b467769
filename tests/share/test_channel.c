/* SPDX-License-Identifier: MIT */
/*
 * Channels: many storages at once, half messages, limits; descriptors
 */
#include "tests/support/ends.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Many ---------------------------------------------------------------- */
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
	/* Each storage can be freed alone; the others stay as they are. */
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

/* Storages of a group need no descriptor each. */
START_TEST(with_32_descriptors)
{
	struct rlimit was, few;
	struct ends e;
	struct cow_channel *c;
	static struct cow_storage *s[1000];

	getrlimit(RLIMIT_NOFILE, &was);
	few = was;
	few.rlim_cur = 32;
	setrlimit(RLIMIT_NOFILE, &few);
	ends_make(&e, SOCK_STREAM, true);
	c = child_channel(&e);
	for (size_t i = 0; i < COUNT(s); i++) {
		ok(cow_group_storage_new(e.group, PAGE, modes[i % 2], &s[i]));
		fill(mut(s[i]), PAGE, i);
	}
	for (size_t i = 0; i < COUNT(s); i++) {
		struct cow_storage *r;

		send_one(e.mine, s[i], modes[i % 2]);
		r = receive_one(c);
		ck_pattern(data(r), PAGE, i);
		cow_storage_unref(r);
		cow_storage_unref(s[i]);
	}
	cow_channel_free(c);
	ends_free(&e);
	setrlimit(RLIMIT_NOFILE, &was);
}
END_TEST

/* An alias in a group's memory can't be one outside of it. */
START_TEST(alias_does_not_leave_its_group)
{
	struct ends e, outside;
	struct cow_storage *s;
	struct cow_parcel p;
	uint64_t offset;
	int fd;

	ends_make(&e, SOCK_STREAM, true);
	ends_make(&outside, SOCK_STREAM, false);
	ok(cow_group_storage_new(e.group, PAGE, COW_SHARE_ALIAS, &s));
	p = parcel(s, COW_SHARE_ALIAS);
	fails(-EXDEV, (int)cow_channel_send(outside.mine, &p, 1, NULL, 0));
	fails(-EXDEV, cow_storage_export(s, COW_SHARE_ALIAS, &fd, &offset));
	send_one(outside.mine, s, COW_SHARE_CLONE);
	cow_storage_unref(s);
	ends_free(&outside);
	ends_free(&e);
}
END_TEST

/* A packet is as long as the socket's buffer allows. */
START_TEST(small_packets)
{
	struct ends e;
	struct cow_channel *c;
	struct cow_parcel p[200], q[200];
	struct cow_storage *s = new_filled(500, 0, 5);
	static char note[COW_NOTE_MAX];
	int small = 5000;
	long sent = 0, got = 0;

	ends_make(&e, SOCK_SEQPACKET, false);
	c = child_channel(&e);
	fcntl(e.fd[0], F_SETFL, O_NONBLOCK);
	fcntl(e.fd[1], F_SETFL, O_NONBLOCK);
	setsockopt(e.fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	for (size_t i = 0; i < COUNT(p); i++)
		p[i] = parcel(s, COW_SHARE_CLONE);
	while (got < (long)COUNT(p)) {
		long n = sent < (long)COUNT(p)
		                 ? cow_channel_send(e.mine, p + sent,
		                                    (size_t)(200 - sent), NULL, 0)
		                 : cow_channel_flush(e.mine);

		must(n >= 0 || n == -EAGAIN);
		sent += n > 0 ? n : 0;
		while ((n = cow_channel_receive(c, q, 200, NULL, 0, NULL)) > 0)
			for (long i = 0; i < n; i++, got++) {
				ck_pattern(data(q[i].storage), 500, 5);
				cow_storage_unref(q[i].storage);
			}
		ck_assert_int_eq(n, -EAGAIN);
	}
	/* A message that is too long for a packet is refused, and the channel goes on. */
	small = 1;
	setsockopt(e.fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	fails(-EMSGSIZE, (int)cow_channel_send(e.mine, p, 1, note, sizeof(note)));
	send_one(e.mine, s, COW_SHARE_CLONE);
	cow_storage_unref(receive_one(c));
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* The longest note takes no room from those that have none, and arrives. */
START_TEST(long_note_beside_many)
{
	static struct cow_parcel p[1024], q[COUNT(p)];
	static char note[COW_NOTE_MAX], back[COW_NOTE_MAX];
	size_t bytes, want = _i & 2 ? sizeof(note) : 0;
	long many = want ? 1000 : COUNT(p);
	struct cow_storage *s;
	struct cow_channel *c;
	struct ends e;

	ends_make(&e, _i & 1 ? SOCK_SEQPACKET : SOCK_STREAM, true);
	ok(cow_group_storage_new(e.group, PAGE, COW_SHARE_CLONE, &s));
	for (long i = 0; i < many; i++)
		p[i] = parcel(s, COW_SHARE_CLONE);
	fill(note, want, 3);
	must(cow_channel_send(e.mine, p, (size_t)many, note, want) == many);
	c = child_channel(&e);
	must(cow_channel_receive(c, q, COUNT(q), back, want, &bytes) == many);
	ck_assert_uint_eq(bytes, want);
	ck_pattern(back, bytes, 3);
	for (long i = 0; i < many; i++)
		cow_storage_unref(q[i].storage);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

static void has_fewer_descriptors(void *arg)
{
	ck_assert_int_le(count_fds(), *(long *)arg - 2);
}

/* The descriptors that came with half a message are the parent's: a message's slot
 * would live on in a child. */
START_TEST(child_keeps_nothing_of_half_a_message)
{
	struct ends e;
	struct cow_channel *c;
	struct cow_parcel p[40], q;
	struct cow_storage *s = new_filled(500, 0, 5), *packed;
	static char note[COW_NOTE_MAX];
	int small = 4096;
	long fds;

	ends_make(&e, SOCK_STREAM, true);
	c = child_channel(&e);
	fcntl(e.fd[0], F_SETFL, O_NONBLOCK);
	fcntl(e.fd[1], F_SETFL, O_NONBLOCK);
	setsockopt(e.fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	ok(cow_group_storage_new(e.group, PAGE, COW_SHARE_CLONE, &packed));
	for (size_t i = 0; i < COUNT(p); i++)
		p[i] = parcel(i ? s : packed, COW_SHARE_CLONE);
	ck_assert_int_eq(cow_channel_send(e.mine, p, COUNT(p), note,
	                                  sizeof(note)),
	                 (long)COUNT(p));
	fails(-EAGAIN, (int)cow_channel_receive(c, &q, 1, NULL, 0, NULL));
	fds = count_fds();
	in_child(has_fewer_descriptors, &fds);
	cow_storage_unref(packed);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* If no descriptor is left for a message, nothing is lost. */
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

static void frees_the_channel(void *arg)
{
	uint64_t before = stats_now().storages_live;

	cow_channel_free(arg);
	ck_assert_uint_eq(stats_now().storages_live, before - 1);
}

/* Storages that had come and were not asked for end with the child's channel, too. */
START_TEST(child_frees_what_had_come)
{
	struct ends e;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(MIB, 0, 1);
	struct cow_parcel p[2] = { parcel(s, COW_SHARE_CLONE),
		                   parcel(s, COW_SHARE_CLONE) }, q;

	ends_make(&e, SOCK_STREAM, true);
	c = child_channel(&e);
	ck_assert_int_eq(cow_channel_send(e.mine, p, 2, NULL, 0), 2);
	ck_assert_int_eq(cow_channel_receive(c, &q, 1, NULL, 0, NULL), 1);
	in_child(frees_the_channel, c);
	cow_storage_unref(q.storage);
	cow_storage_unref(s);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* The first bytes of a longer memfd were imported. A receiver must not get the rest. */
START_TEST(part_of_a_memfd_is_sent_alone)
{
	struct cow_storage *s = new_filled(3 * PAGE, 0, 1), *part;
	uint64_t offset;
	struct stat st;
	int fd, out;

	ok(cow_storage_export(s, COW_SHARE_SEALED, &fd, &offset));
	cow_storage_unref(s); /* one home for each place */
	ok(cow_storage_import(fd, offset, PAGE, modes[_i + 1], &part));
	ok(cow_storage_export(part, COW_SHARE_SEALED, &out, &offset));
	ck_assert_int_eq(fstat(out, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, PAGE);
	ck_pattern(data(part), PAGE, 1);
	close(out);
	close(fd);
	cow_storage_unref(part);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("channel");
	TCase *tcase = add_case(suite, "channel");
	tcase_add_loop_test(tcase, thousands_of_small_ones, 0, 2);
	tcase_add_loop_test(tcase, half_sent_and_half_received, 0, 2);
	tcase_add_test(tcase, with_32_descriptors);
	tcase_add_test(tcase, alias_does_not_leave_its_group);
	tcase_add_test(tcase, small_packets);
	tcase_add_loop_test(tcase, long_note_beside_many, 0, 4);
	tcase_add_test(tcase, child_keeps_nothing_of_half_a_message);
	tcase_add_loop_test(tcase, no_descriptors_left, 0, 4);
	tcase_add_loop_test(tcase, views_travel_as_storage_and_offset, 0, 2);
	tcase_add_loop_test(tcase, exported_and_imported, 0,
	                    3 * COUNT(sizes));
	tcase_add_loop_test(tcase, a_channel_is_not_the_childs, 0, 2);
	tcase_add_test(tcase, child_frees_what_had_come);
	tcase_add_loop_test(tcase, part_of_a_memfd_is_sent_alone, 0, 2);
	return run_suite(suite);
}
