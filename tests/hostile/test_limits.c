/* SPDX-License-Identifier: MIT */
/*
 * A hostile peer, and hostile surroundings
 *
 * Peers of another user, peers that never read, descriptors that are no sockets, programs that
 * close the library's descriptors, no memory, no descriptors, no /proc. When a shortage is
 * over, what was sent arrives.
 */
#include "tests/support/left.h"
#include "tests/support/hostile.h"

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct cow_parcel parcel_of(struct cow_storage *s,
                                   enum cow_share_mode mode)
{
	return (struct cow_parcel){ .storage = s,
		                    .length = cow_storage_bytes(s),
		                    .mode = mode };
}

/* ---- The peer's user ------------------------------------------------------------- */

static struct sockaddr_un address;

static int listening(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sun_family = AF_UNIX;
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
	         "cowshed-test-%d", (int)getpid());
	must(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	must(listen(fd, 1) == 0);
	return fd;
}

static void connects_as(void *arg)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte;

	if (*(int *)arg)
		must(setuid(65533) == 0);
	must(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	must(read(fd, &byte, 1) == 0);
}

START_TEST(wrong_user)
{
	int fd = listening(), peer;
	struct cow_channel *c = (void *)8;
	pid_t child;

	child = child_start(connects_as, &_i);
	peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	must(peer >= 0);
	if (_i) {
		fails(-EPERM, cow_channel_new(peer, NULL, COW_CHANNEL_SAME_USER,
		                              &c));
		ck_assert_ptr_eq(c, (void *)8);
	}
	ok(cow_channel_new(peer, NULL, _i ? 0 : COW_CHANNEL_SAME_USER, &c));
	cow_channel_free(c);
	close(peer);
	close(fd);
	child_finish(child);
}
END_TEST

START_TEST(sockets_that_are_none)
{
	struct cow_channel *c = (void *)8;
	const struct {
		int fd, error;
	} all[] = {
		{ -1, -EBADF },
		{ 10000, -EBADF },
		{ memfd_of(1, 0), -ENOTSOCK },
		{ socket(AF_INET, SOCK_STREAM, 0), -EPROTOTYPE },
		{ socket(AF_UNIX, SOCK_DGRAM, 0), -EPROTOTYPE },
		{ socket(AF_INET, SOCK_DGRAM, 0), -EPROTOTYPE },
		{ open("/", O_PATH), -EBADF },
		{ open("/dev/null", O_RDWR), -ENOTSOCK },
	};

	for (size_t i = 0; i < COUNT(all); i++) {
		fails(all[i].error, cow_channel_new(all[i].fd, NULL, 0, &c));
		ck_assert_ptr_eq(c, (void *)8);
		if (all[i].fd >= 0 && all[i].fd != 10000)
			close(all[i].fd);
	}
	fails(-EINVAL, cow_channel_new(0, NULL, 1u << 31, &c));
}
END_TEST

/* ---- Programs that close what waits ------------------------------------------------ */

/* Half a message is here, with its descriptor. The program closes that number and gets it
 * again for a file of its own. That file is not taken for what came, and is not closed with
 * the message. */
START_TEST(waiting_descriptor_is_replaced)
{
	int sent = memfd_of(5000, SEALS_ALL), mine = memfd_of(5000, SEALS_ALL);
	struct raw m = raw_own(sent, 5000, COW_SHARE_SEALED);
	unsigned char bytes[1024];
	size_t all = raw_bytes(&m, bytes), half = _i & 1 ? all / 2 : 1;
	struct cow_parcel p = { .storage = NULL };
	struct stat before, after;
	struct victim v;
	int waiting;

	victim_make(&v, SOCK_STREAM);
	waiting = dup(0); /* the lowest number that is free */
	close(waiting);
	must(put(v.theirs, bytes, half, &sent, 1, 0) == (long)half);
	fails(-EAGAIN, (int)take(&v, &p, 1));
	if (_i & 2) {
		must(dup3(mine, waiting, O_CLOEXEC) == waiting);
		must(fstat(waiting, &before) == 0);
	} else {
		must(close(waiting) == 0);
	}
	must(put(v.theirs, bytes + half, all - half, NULL, 0, 0) > 0);
	fails(-ESTALE, (int)take(&v, &p, 1));
	ck_assert_ptr_null(p.storage);
	if (_i & 2) {
		must(fstat(waiting, &after) == 0);
		must(before.st_ino == after.st_ino);
		must(close(waiting) == 0);
	}
	/* The next one arrives. */
	must(put(v.theirs, bytes, all, &sent, 1, 0) == (long)all);
	ck_assert_int_eq(take(&v, &p, 1), 1);
	ck_pattern(data(p.storage), PAGE, 5);
	cow_storage_unref(p.storage);
	calm(&v);
	close(sent);
	close(mine);
	victim_free(&v);
}
END_TEST

static int without_identity(int kind)
{
	return kind == 0   ? eventfd(0, EFD_CLOEXEC)
	       : kind == 1 ? epoll_create1(EPOLL_CLOEXEC)
	       : kind == 2 ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)
	                   : open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* All eventfds, epolls and the like have one inode, and all openings of a device have its
 * node's. Such a descriptor came with half a message. The program closed all its numbers, and
 * got an epoll of its own under that one. The epoll was closed with the message. */
START_TEST(epoll_in_the_place_of_a_waiting_eventfd)
{
	int sent = without_identity(_i / 2);
	int mine = without_identity(_i < 2 ? 1 : _i / 2);
	struct raw m = raw_own(sent, 5000, COW_SHARE_SEALED);
	unsigned char bytes[1024];
	size_t all = raw_bytes(&m, bytes), half = _i & 1 ? all / 2 : 1;
	struct cow_parcel p = { .storage = NULL };
	struct victim v;
	int waiting;

	must(sent >= 0 && mine >= 0);
	victim_make(&v, SOCK_STREAM);
	waiting = dup(0);
	close(waiting);
	must(put(v.theirs, bytes, half, &sent, 1, 0) == (long)half);
	fails(-EAGAIN, (int)take(&v, &p, 1));
	/* It does not wait at all. */
	ck_assert_int_eq(fcntl(waiting, F_GETFD), -1);
	must(dup3(mine, waiting, O_CLOEXEC) == waiting);
	must(put(v.theirs, bytes + half, all - half, NULL, 0, 0) > 0);
	fails(-EBADMSG, (int)take(&v, &p, 1));
	ck_assert_int_ge(fcntl(waiting, F_GETFD), 0);
	close(waiting);
	calm(&v);
	close(sent);
	close(mine);
	victim_free(&v);
}
END_TEST

/* ---- Peers that do not read ------------------------------------------------------- */

/* Sending ends with -EAGAIN before memory runs out; the storages stay as they are. */
START_TEST(peer_that_never_reads)
{
	struct cow_group *group = NULL;
	struct cow_storage *s = new_filled(64 * KIB, 0, 1);
	struct cow_parcel p = parcel_of(s, COW_SHARE_CLONE);
	struct victim v;
	long r = 1;
	int sent = 0;

	if (_i & 2)
		ok(cow_group_new(&group));
	victim_make_with(&v, _i & 1 ? SOCK_STREAM : SOCK_SEQPACKET, group, 0);
	while (r == 1 && sent < 100000) {
		r = cow_channel_send(v.channel, &p, 1, "n", 1);
		sent++;
	}
	must(r == -EAGAIN || r == -ETOOMANYREFS);
	fill(mut(s), 64 * KIB, 2);
	ck_pattern(data(s), 64 * KIB, 2);
	cow_storage_unref(s);
	close(v.theirs);
	v.theirs = -1;
	victim_free(&v);
	cow_group_unref(group);
}
END_TEST

/* ---- The program ---------------------------------------------------------------------- */

START_TEST(socket_closed_and_its_number_used_again)
{
	struct cow_storage *s = new_filled(300, 0, 1);
	struct cow_parcel p = parcel_of(s, COW_SHARE_CLONE), q;
	struct victim v, other;
	char byte;

	victim_make(&v, SOCK_STREAM);
	victim_make(&other, SOCK_STREAM);
	must(put(other.theirs, "!", 1, NULL, 0, 0) == 1);
	must(dup2(other.mine, v.mine) == v.mine);
	fails(-EBADF, (int)take(&v, &q, 1));
	fails(-EBADF, (int)cow_channel_send(v.channel, &p, 1, NULL, 0));
	/* Nothing was read from, or written to, what it is now. */
	ck_assert_int_eq(recv(other.mine, &byte, 1, 0), 1);
	ck_assert_int_eq(recv(other.theirs, &byte, 1, MSG_DONTWAIT), -1);
	close(v.mine);
	fails(-EBADF, (int)take(&v, &q, 1));
	cow_storage_unref(s);
	victim_free(&v);
	victim_free(&other);
}
END_TEST

/* Puts a file of the program's in the place of each of ours. */
static int in_place_of_ours(int file)
{
	DIR *d = opendir("/proc/self/fd");
	struct rlimit own = descriptors_raise();
	const struct dirent *e;
	int n = 0;

	while ((e = readdir(d))) {
		char path[300], what[64] = { 0 };
		int fd = atoi(e->d_name);

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (fd == file || readlink(path, what, sizeof(what) - 1) < 0 ||
		    (strncmp(what, "/memfd:cowshed-storage", 22) != 0 &&
		     strncmp(what, "/memfd:cowshed-pack", 19) != 0 &&
		     strncmp(what, "/memfd:cowshed-group", 20) != 0))
			continue;
		must(dup3(file, fd, O_CLOEXEC) == fd);
		n++;
	}
	closedir(d);
	must(setrlimit(RLIMIT_NOFILE, &own) == 0);
	return n;
}

static void close_all_but(int least)
{
	for (int fd = least; fd < 1000; fd++)
		close(fd);
}

/* A private file of the program must not go to the peer. (In a child, because the library's
 * descriptors are lost for good.) */
static void displaced(void *arg)
{
	int grouped = *(int *)arg, private = memfd_create("private", 0);
	struct cow_group *group = NULL;
	struct cow_storage *s = new_filled(64 * KIB, 0, 1);
	struct cow_parcel p = parcel_of(s, COW_SHARE_CLONE);
	struct victim v;

	if (grouped)
		ok(cow_group_new(&group));
	victim_make_with(&v, SOCK_STREAM, group, 0);
	ck_assert_int_eq(cow_channel_send(v.channel, &p, 1, NULL, 0), 1);
	must(in_place_of_ours(private) > 0);
	while (recv(v.theirs, &(char[1000]){ 0 }, 1000, MSG_DONTWAIT) > 0)
		;
	fails(-EBADF, (int)cow_channel_send(v.channel, &p, 1, NULL, 0));
	ck_assert_int_eq(recv(v.theirs, &(char){ 0 }, 1, MSG_DONTWAIT), -1);
	ck_pattern(data(s), 64 * KIB, 1);
	fill(mut(s), 64 * KIB, 2);
	ck_pattern(data(s), 64 * KIB, 2);
	if (!grouped)
		good(&v); /* what needs none of them goes on */
	cow_storage_unref(s);
	cow_channel_free(v.channel);
	cow_group_unref(group);
	ck_assert_int_eq(lseek(private, 0, SEEK_CUR), 0); /* it was not closed */
	close_all_but(400);
}

START_TEST(files_in_the_place_of_ours)
{
	in_child(displaced, &_i);
}
END_TEST

START_TEST(socket_that_peeks_elsewhere)
{
	struct cow_parcel p[2];
	struct raw m = raw_new();
	struct victim v;
	int at = 7;
	long r;

	victim_make(&v, _i ? SOCK_STREAM : SOCK_SEQPACKET);
	must(setsockopt(v.mine, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof(at)) == 0);
	raw_put(v.theirs, &m);
	for (int i = 0; i < 3; i++) {
		r = take(&v, p, 2);
		must(r == 2 || r == -EAGAIN || r == -EBADMSG);
		for (long k = 0; k < r; k++)
			cow_storage_unref(p[k].storage);
	}
	ck_assert_int_eq(footprint_now().fds, v.fds);
	victim_free(&v);
}
END_TEST

/* ---- Shortages -------------------------------------------------------------------------- */

/* Without addresses for it a message waits. A send that fails keeps its storages. */
START_TEST(no_memory)
{
	int fd = memfd_of(64 * MIB, SEALS_ALL);
	struct raw m = raw_own(fd, 64 * MIB, COW_SHARE_SEALED);
	struct cow_storage *s = new_filled(64 * MIB, 0, 1);
	struct cow_parcel p = parcel_of(s, COW_SHARE_SEALED), q;
	struct rlimit was, small;
	struct victim v;

	victim_make(&v, _i ? SOCK_STREAM : SOCK_SEQPACKET);
	raw_put(v.theirs, &m);
	getrlimit(RLIMIT_AS, &was);
	small = was;
	small.rlim_cur = 16 * MIB;
	setrlimit(RLIMIT_AS, &small);
	for (int i = 0; i < 3; i++) {
		fails(-ENOMEM, (int)take(&v, &q, 1));
		fails(-ENOMEM,
		      (int)cow_channel_send(v.channel, &p, 1, NULL, 0));
	}
	setrlimit(RLIMIT_AS, &was);
	ck_pattern(data(s), 64 * MIB, 1);
	ck_assert_int_eq(cow_channel_send(v.channel, &p, 1, NULL, 0), 1);
	ck_assert_int_eq(take(&v, &q, 1), 1);
	ck_pattern(data(q.storage), PAGE, 5);
	cow_storage_unref(q.storage);
	cow_storage_unref(s);
	close(fd);
	victim_free(&v);
}
END_TEST

START_TEST(no_descriptors_to_send_from)
{
	struct cow_storage *s = new_filled(MIB, 0, 1), *t = new_filled(MIB, 0, 2);
	struct cow_parcel p = parcel_of(s, COW_SHARE_SEALED);
	struct rlimit was, none;
	struct cow_group *group;
	struct victim v;
	uint64_t offset;
	int fd = -7, lowest;

	victim_make(&v, SOCK_STREAM);
	getrlimit(RLIMIT_NOFILE, &was);
	none = was;
	lowest = dup(0);
	close(lowest);
	none.rlim_cur = (rlim_t)lowest;
	setrlimit(RLIMIT_NOFILE, &none);
	fails(-EMFILE, (int)cow_channel_send(v.channel, &p, 1, NULL, 0));
	fails(-EMFILE, cow_storage_export(t, COW_SHARE_ALIAS, &fd, &offset));
	fails(-EMFILE, cow_group_new(&group));
	setrlimit(RLIMIT_NOFILE, &was);
	ck_assert_int_eq(fd, -7);
	ck_assert_int_eq(cow_channel_send(v.channel, &p, 1, NULL, 0), 1);
	ck_pattern(data(s), MIB, 1);
	ck_pattern(data(t), MIB, 2);
	cow_storage_unref(s);
	cow_storage_unref(t);
	calm(&(struct victim){ v.mine, v.theirs, v.channel,
	                       footprint_now().fds });
	victim_free(&v);
}
END_TEST

/* Without /proc there are no groups; everything else works. */
static void without_proc(void *arg)
{
	struct cow_storage *s = new_filled(MIB, 0, 1), *r;
	struct cow_group *group = (void *)8;
	struct cow_parcel p = parcel_of(s, COW_SHARE_CLONE), q;
	int fd[2];
	struct cow_channel *a, *b;

	must(chroot(arg) == 0);
	fails(-ENOENT, cow_group_new(&group));
	ck_assert_ptr_eq(group, (void *)8);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
	ok(cow_channel_new(fd[0], NULL, 0, &a));
	ok(cow_channel_new(fd[1], NULL, 0, &b));
	ck_assert_int_eq(cow_channel_send(a, &p, 1, NULL, 0), 1);
	ck_assert_int_eq(cow_channel_receive(b, &q, 1, NULL, 0, NULL), 1);
	r = q.storage;
	ck_pattern(data(r), MIB, 1);
}

START_TEST(no_proc)
{
	char empty[LEFT_NAME];

	left_folder(empty, "empty");
	in_child(without_proc, empty);
	must(rmdir(empty) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile_limits");
	TCase *tcase = add_case(suite, "hostile_limits");

	tcase_add_loop_test(tcase, wrong_user, 0, geteuid() == 0 ? 2 : 1);
	if (geteuid() != 0)
		puts("skip wrong_user:1 only root can be another user");
	tcase_add_test(tcase, sockets_that_are_none);
	tcase_add_loop_test(tcase, waiting_descriptor_is_replaced, 0, 4);
	tcase_add_loop_test(tcase, epoll_in_the_place_of_a_waiting_eventfd, 0, 8);
	tcase_add_loop_test(tcase, peer_that_never_reads, 0, 4);
	tcase_add_test(tcase, socket_closed_and_its_number_used_again);
	tcase_add_loop_test(tcase, files_in_the_place_of_ours, 0, 2);
	tcase_add_loop_test(tcase, socket_that_peeks_elsewhere, 0, 2);
	if (!SANITIZED)
		tcase_add_loop_test(tcase, no_memory, 0, 2);
	else
		puts("skip no_memory sanitizers want more addresses than any limit");
	tcase_add_test(tcase, no_descriptors_to_send_from);
	/* The root that there is already: allowed or not, nothing changes. */
	if (chroot("/") != 0 && errno == EPERM)
		puts("skip no_proc this user may not chroot");
	else
		tcase_add_test(tcase, no_proc);
	return run_suite(suite);
}
