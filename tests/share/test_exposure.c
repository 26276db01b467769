/* SPDX-License-Identifier: MIT */
/*
 * What each mode exposes, as docs/security.md says
 *
 * The receiver here does not use the library. It takes the descriptors of a message, opens
 * each again for reading and writing, maps all of it, and looks at the bytes.
 */
#include "memfd/socket.h"
#include "share/layout.h"
#include "tests/support/hostile.h"

#include <stdio.h>

enum { BYTES = 100 * 1024 + 77 };

static const enum cow_share_mode modes[] = { COW_SHARE_ALIAS, COW_SHARE_CLONE,
	                                     COW_SHARE_SEALED };

/* Maps all of a file; NULL: the kernel refuses this kind of mapping. */
static unsigned char *map_all(int fd, int prot, size_t *ret)
{
	char path[32];
	off_t bytes = lseek(fd, 0, SEEK_END);
	void *at = MAP_FAILED;
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, (prot & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	*ret = (size_t)bytes;
	if (again >= 0) {
		at = mmap(NULL, *ret, prot, MAP_SHARED | MAP_NORESERVE, again,
		          0);
		close(again);
	}
	return at == MAP_FAILED ? NULL : at;
}

/* Exactly these bytes, and zeros up to the end of the page. */
static void is_alone(int fd, bool writable)
{
	size_t bytes, pages = (BYTES + PAGE - 1) & ~(PAGE - 1);
	unsigned char *at = map_all(fd, PROT_READ, &bytes), first;

	must(at != NULL);
	ck_assert_uint_eq(bytes, BYTES);
	ck_pattern(at, BYTES, 7);
	ck_bytes(at + BYTES, pages - BYTES, 0);
	munmap(at, bytes);
	at = map_all(fd, PROT_READ | PROT_WRITE, &bytes);
	ck_assert_int_eq(at != NULL, writable);
	if (at)
		munmap(at, bytes);
	must(pread(fd, &first, 1, 0) == 1);
	ck_assert_int_eq(pwrite(fd, &first, 1, 0), writable ? 1 : -1);
}

static bool contains(int fd, uint64_t seed)
{
	size_t bytes;
	unsigned char *at = map_all(fd, PROT_READ | PROT_WRITE, &bytes);
	unsigned char want[64];
	bool found = false;

	must(at != NULL);
	fill(want, sizeof(want), seed);
	for (size_t i = cow__data_offset(1 << 22); !found && i < bytes &&
	                                            i < (1ull << 31);
	     i += PAGE)
		found = memcmp(at + i, want, sizeof(want)) == 0;
	munmap(at, bytes);
	return found;
}

static bool is_named(int fd, const char *name)
{
	char path[32], what[64] = { 0 };

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	must(readlink(path, what, sizeof(what) - 1) > 0);
	return strncmp(what + 7, name, strlen(name)) == 0;
}

struct heard {
	int fd[2], fds[COW__SOCKET_FDS];
	unsigned nfds;
	struct cow_group *group;
	struct cow_storage *s, *neighbour;
	unsigned char bytes[COW__WIRE_BYTES];
	long count;
};

/* What a peer without the library gets. */
static void send_and_look(struct heard *h, struct cow_storage *s, enum cow_share_mode mode)
{
	struct cow_parcel p = { .storage = s, .length = 10, .mode = mode };
	struct cow_channel *c;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, h->fd) == 0);
	ok(cow_channel_new(h->fd[0], h->group, 0, &c));
	ck_assert_int_eq(cow_channel_send(c, &p, 1, NULL, 0), 1);
	cow_channel_free(c);
	h->count = cow__socket_look(h->fd[1], h->bytes, sizeof(h->bytes),
	                            h->fds, COW__SOCKET_FDS, &h->nfds);
	must(h->count > 0);
}

/* Sends one of two storages that lie side by side. */
static void hear(struct heard *h, bool grouped, enum cow_share_mode mode,
                 size_t bytes)
{
	*h = (struct heard){ .nfds = 0 };
	if (grouped) {
		ok(cow_group_new(&h->group));
		ok(cow_group_storage_new(h->group, bytes,
		                         mode == COW_SHARE_SEALED
		                                 ? COW_SHARE_CLONE
		                                 : mode,
		                         &h->neighbour));
		fill(mut(h->neighbour), bytes, 8);
		ok(cow_group_storage_new(h->group, bytes,
		                         mode == COW_SHARE_SEALED
		                                 ? COW_SHARE_CLONE
		                                 : mode,
		                         &h->s));
		fill(mut(h->s), bytes, 7);
	} else {
		h->neighbour = new_filled(bytes, 0, 8);
		h->s = new_filled(bytes, 0, 7);
	}
	send_and_look(h, h->s, mode);
}

static void end(struct heard *h)
{
	while (h->nfds > 0)
		close(h->fds[--h->nfds]);
	close(h->fd[0]);
	close(h->fd[1]);
	cow_storage_unref(h->s);
	cow_storage_unref(h->neighbour);
	cow_group_unref(h->group);
}

/* One descriptor, of the one storage: its bytes, also those outside of the view. */
START_TEST(without_a_group)
{
	struct heard h;

	hear(&h, false, modes[_i], BYTES);
	ck_assert_uint_eq(h.nfds, 1);
	is_alone(h.fds[0], modes[_i] == COW_SHARE_ALIAS);
	end(&h);
}
END_TEST

START_TEST(small_clone)
{
	struct heard h;

	hear(&h, _i, COW_SHARE_CLONE, 512);
	ck_assert_uint_eq(h.nfds, _i ? 1 : 0); /* the door */
	end(&h);
}
END_TEST

/* The door, the message's slot, and a pack with all that lies there. */
START_TEST(with_a_group)
{
	struct heard h;

	hear(&h, true, modes[_i], BYTES);
	ck_assert_uint_eq(h.nfds, 3);
	for (int i = 0; i < 2; i++)
		must(is_named(h.fds[i], "cowshed-group"));
	must(is_named(h.fds[2], "cowshed-pack"));
	must(contains(h.fds[2], 7));
	must(contains(h.fds[2], 8));
	end(&h);
}
END_TEST

START_TEST(sealed_with_a_group)
{
	struct heard h;

	hear(&h, true, COW_SHARE_SEALED, BYTES);
	ck_assert_uint_eq(h.nfds, 2);
	must(is_named(h.fds[0], "cowshed-group"));
	is_alone(h.fds[1], false);
	end(&h);
}
END_TEST

START_TEST(exported)
{
	struct cow_storage *n = new_filled(BYTES, 0, 8);
	struct cow_storage *s = new_filled(BYTES, 0, 7);
	uint64_t offset;
	int fd;

	ok(cow_storage_export(s, modes[_i], &fd, &offset));
	ck_assert_uint_eq(offset, 0);
	is_alone(fd, modes[_i] == COW_SHARE_ALIAS);
	close(fd);
	cow_storage_unref(s);
	cow_storage_unref(n);
}
END_TEST

/* A storage in a group's pack leaves the group in a file of its own. */
START_TEST(exported_from_a_group)
{
	struct cow_storage *s, *n;
	struct cow_group *g;
	uint64_t offset;
	int fd;

	ok(cow_group_new(&g));
	ok(cow_group_storage_new(g, BYTES, COW_SHARE_CLONE, &n));
	ok(cow_group_storage_new(g, BYTES, COW_SHARE_CLONE, &s));
	fill(mut(n), BYTES, 8);
	fill(mut(s), BYTES, 7);
	ok(cow_storage_export(s, modes[_i], &fd, &offset));
	is_alone(fd, modes[_i] == COW_SHARE_ALIAS);
	close(fd);
	cow_storage_unref(s);
	cow_storage_unref(n);
	cow_group_unref(g);
}
END_TEST

/* A file of many GiB of addresses, in which all bytes that are not zero are at `offset`. */
static void is_alone_at(int fd, size_t offset, size_t length)
{
	size_t bytes;
	unsigned char *at = map_all(fd, PROT_READ | PROT_WRITE, &bytes);
	off_t from, to = 0;

	must(at != NULL);
	must(bytes > offset + length);
	ck_pattern(at + offset, length, 7);
	memset(at + offset, 0, length); /* any process with the descriptor may */
	while ((from = lseek(fd, to, SEEK_DATA)) >= 0) {
		to = lseek(fd, from, SEEK_HOLE);
		ck_bytes(at + from, (size_t)(to - from), 0);
	}
	ck_assert_int_eq(errno, ENXIO);
	munmap(at, bytes);
}

/* Storages that were shared in place: made in a file of their own, or moved to one. */
START_TEST(shared_in_place)
{
	enum { LARGE = 4 * 1024 * 1024 + 77 };
	struct cow_storage *before, *s, *after;
	struct cow__wire w;
	struct heard h = { .nfds = 0 };

	if (_i)
		ok(cow_option_set("share", "yes"));
	before = new_filled(LARGE, COW_STORAGE_TRANSPARENT, 8);
	s = new_filled(LARGE, COW_STORAGE_TRANSPARENT, 7);
	after = new_filled(LARGE, COW_STORAGE_TRANSPARENT, 9);
	ok(cow_storage_share_in_place(s));
	send_and_look(&h, s, COW_SHARE_ALIAS);
	ck_assert_uint_eq(h.nfds, 1);
	must(cow__wire_check(h.bytes, (size_t)h.count, 1, &w) == 0);
	is_alone_at(h.fds[0], w.items[0].file_offset, LARGE);
	ck_pattern(data(before), LARGE, 8);
	ck_bytes(data(s), LARGE, 0);
	ck_pattern(data(after), LARGE, 9);
	cow_storage_unref(before);
	cow_storage_unref(after);
	h.s = s;
	end(&h);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("exposure");
	TCase *tcase = add_case(suite, "exposure");

	tcase_add_loop_test(tcase, without_a_group, 0, 3);
	tcase_add_loop_test(tcase, small_clone, 0, 2);
	tcase_add_loop_test(tcase, with_a_group, 0, 2);
	tcase_add_test(tcase, sealed_with_a_group);
	tcase_add_loop_test(tcase, exported, 0, 3);
	tcase_add_loop_test(tcase, exported_from_a_group, 0, 3);
	tcase_add_loop_test(tcase, shared_in_place, 0, 2);
	return run_suite(suite);
}
