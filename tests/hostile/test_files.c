/* SPDX-License-Identifier: MIT */
/*
 * A hostile peer: descriptors
 *
 * All kinds of files that are no sealed memfd, seals that are claimed and not set, sizes that
 * the file does not have, wrong counts of descriptors. None of it is mapped, and no
 * descriptor stays.
 */
#include "tests/support/hostile.h"

#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const enum cow_share_mode modes[] = { COW_SHARE_ALIAS, COW_SHARE_CLONE,
	                                     COW_SHARE_SEALED };

/* ---- What it may be instead ----------------------------------------------------- */

static int a_pipe(void)
{
	int fd[2];

	must(pipe2(fd, O_CLOEXEC) == 0);
	close(fd[1]);
	return fd[0];
}

static int a_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int a_device(void)
{
	return open("/dev/zero", O_RDWR | O_CLOEXEC);
}

static int a_directory(void)
{
	return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int a_file_in(const char *folder)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "%s/cowshed-XXXXXX", folder);
	fd = mkostemp(name, O_CLOEXEC);
	if (fd >= 0) {
		unlink(name);
		must(ftruncate(fd, 1 << 20) == 0);
	}
	return fd;
}

static int a_file(void)
{
	return a_file_in("/var/tmp");
}

static int a_file_of_tmpfs(void)
{
	return a_file_in("/dev/shm");
}

static int an_epoll(void)
{
	return epoll_create1(EPOLL_CLOEXEC);
}

static int an_eventfd(void)
{
	return eventfd(0, EFD_CLOEXEC);
}

static int the_process(void)
{
	return open("/proc/self/mem", O_RDWR | O_CLOEXEC);
}

static int huge_memfd(void)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING |
	                                      MFD_HUGETLB);

	if (fd >= 0 && (ftruncate(fd, 2 << 20) != 0 ||
	                fcntl(fd, F_ADD_SEALS, SEALS_ALL) != 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int opened_again(int flags)
{
	int fd = memfd_of(1 << 20, SEALS_ALL), again;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	close(fd);
	return again;
}

static int a_path(void)
{
	return opened_again(O_PATH);
}

/* A file that no process can read. */
static int for_writing_alone(void)
{
	int fd = memfd_of(1 << 20, SEALS_SIZE), again;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_WRONLY | O_CLOEXEC);
	must(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	close(fd);
	return again;
}

static int unsealed(void)
{
	return memfd_of(1 << 20, 0);
}

static int sealed_in_part(void)
{
	return memfd_of(1 << 20, F_SEAL_SHRINK | F_SEAL_WRITE);
}

static int never_sealable(void)
{
	int fd = memfd_create("plain", MFD_CLOEXEC);

	must(ftruncate(fd, 1 << 20) == 0);
	return fd;
}

static int too_short(void)
{
	return memfd_of(4095, SEALS_ALL);
}

static int empty(void)
{
	return memfd_of(0, SEALS_ALL);
}

/* ... that no process can map. */
static int immense(void)
{
	int fd = memfd_create("immense", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	must(ftruncate(fd, INT64_MAX & ~(off_t)4095) == 0);
	must(fcntl(fd, F_ADD_SEALS, SEALS_ALL) == 0);
	return fd;
}

static int (*const instead[])(void) = {
	a_pipe, a_socket, a_device, a_directory, a_file, a_file_of_tmpfs,
	an_epoll, an_eventfd, the_process, huge_memfd, a_path,
	for_writing_alone, unsealed, sealed_in_part, never_sealable, too_short,
	empty,
};

static bool is_there(int (*make)(void))
{
	int fd;

	if (make != huge_memfd && make != a_file)
		return true;
	fd = make();
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

START_TEST(no_sealed_memfd)
{
	int fd = instead[_i]();

	must(fd >= 0);
	for (size_t i = 0; i < COUNT(modes); i++) {
		struct raw m = raw_own(fd, 4096, modes[i]);
		struct cow_storage *s = NULL;
		struct victim v;

		victim_make(&v, SOCK_STREAM);
		raw_put(v.theirs, &m);
		refused(&v, -EBADMSG);
		victim_free(&v);
		refuses(cow_storage_import(fd, 0, 4096, modes[i], &s));
		ck_assert_ptr_null(s);
	}
	close(fd);
}
END_TEST

/* All but one of the seals: a process with the descriptor can still write the file, shorten it
 * under a reader (SIGBUS), or lengthen it. No seal replaces another. */
static const struct {
	enum cow_share_mode mode;
	int seals;
} lacks_one[] = {
	{ COW_SHARE_CLONE, SEALS_SIZE },
	{ COW_SHARE_SEALED, SEALS_SIZE },
	{ COW_SHARE_CLONE, F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL },
	{ COW_SHARE_SEALED, F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL },
	{ COW_SHARE_CLONE, F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL },
	{ COW_SHARE_SEALED, F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL },
	{ COW_SHARE_ALIAS, F_SEAL_GROW },
	{ COW_SHARE_ALIAS, F_SEAL_SHRINK },
	/* Mappings that are there already go on writing. */
	{ COW_SHARE_CLONE, SEALS_SIZE | F_SEAL_FUTURE_WRITE },
	{ COW_SHARE_SEALED, SEALS_SIZE | F_SEAL_FUTURE_WRITE },
};

static bool seals_are_known(int seals)
{
	int fd = memfd_create("seals", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	bool known = fcntl(fd, F_ADD_SEALS, seals) == 0;

	close(fd);
	return known;
}

START_TEST(one_seal_is_not_set)
{
	int fd = memfd_of(MIB, lacks_one[_i].seals);
	struct raw m = raw_own(fd, MIB, lacks_one[_i].mode);
	struct cow_storage *s = NULL;
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	raw_put(v.theirs, &m);
	refused(&v, -EBADMSG);
	victim_free(&v);
	fails(-EBADMSG, cow_storage_import(fd, 0, MIB, lacks_one[_i].mode, &s));
	ck_assert_ptr_null(s);
	close(fd);
}
END_TEST

/* An alias is written, so a descriptor that can't be written is none. */
START_TEST(alias_that_cannot_be_written)
{
	int fd = _i == 0   ? opened_again(O_RDONLY)
	         : _i == 1 ? memfd_of(MIB, SEALS_ALL)
	                   : memfd_of(MIB, SEALS_SIZE | F_SEAL_FUTURE_WRITE);
	struct raw m = raw_own(fd, 4096, COW_SHARE_ALIAS);
	struct cow_storage *s = NULL;
	struct victim v;

	victim_make(&v, SOCK_SEQPACKET);
	raw_put(v.theirs, &m);
	refused(&v, -EBADMSG);
	victim_free(&v);
	fails(-EBADMSG, cow_storage_import(fd, 0, 4096, COW_SHARE_ALIAS, &s));
	close(fd);
}
END_TEST

START_TEST(sizes_that_no_process_has)
{
	int fd = immense();
	static const uint64_t bytes[] = { 1ull << 48, 1ull << 60,
		                          INT64_MAX & ~4095ull };
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	v.fds = footprint_now().fds;
	for (size_t i = 0; i < COUNT(bytes); i++) {
		struct raw m = raw_own(fd, bytes[i], COW_SHARE_SEALED);

		raw_put(v.theirs, &m);
		refused(&v, -EBADMSG);
	}
	close(fd);
	victim_free(&v);
}
END_TEST

START_TEST(offsets_beyond_the_end)
{
	static const uint64_t offsets[] = { 1, 4096, MIB, 1ull << 40,
		                            INT64_MAX - 8192, INT64_MAX,
		                            UINT64_MAX, UINT64_MAX - 4095 };
	int fd = memfd_of(MIB, SEALS_ALL);
	struct cow_storage *s;
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	for (size_t i = 0; i < COUNT(offsets); i++) {
		struct raw m = raw_own(fd, MIB, COW_SHARE_SEALED);

		m.items[0].file_offset = offsets[i];
		raw_put(v.theirs, &m);
		refused(&v, -EBADMSG);
		fails(-EINVAL, cow_storage_import(fd, offsets[i], MIB,
		                                  COW_SHARE_SEALED, &s));
	}
	close(fd);
	victim_free(&v);
}
END_TEST

/* ---- After the sending ----------------------------------------------------------- */

/* The sender can make a received file neither shorter nor longer, nor write a sealed one, in
 * any way. */
START_TEST(truncate_and_write_after_sending)
{
	bool alias = modes[_i] == COW_SHARE_ALIAS;
	int fd = memfd_of(MIB, alias ? SEALS_SIZE : SEALS_ALL), again;
	struct raw m = raw_own(fd, MIB, modes[_i]);
	struct cow_parcel p;
	struct victim v;
	char path[32];
	void *at;

	victim_make(&v, SOCK_STREAM);
	raw_put(v.theirs, &m);
	ck_assert_int_eq(take(&v, &p, 1), 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	must(again >= 0);
	for (int i = 0; i < 2; i++) {
		int f = i ? again : fd;

		ck_assert_int_eq(ftruncate(f, 0), -1);
		ck_assert_int_eq(ftruncate(f, MIB + 1), -1);
		ck_assert_int_eq(ftruncate(f, PAGE), -1);
		at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
		ck_assert_int_eq(at != MAP_FAILED, alias);
		if (at != MAP_FAILED)
			munmap(at, PAGE);
		ck_assert_int_eq(pwrite(f, "x", 1, 0), alias ? 1 : -1);
		ck_assert_int_eq(fallocate(f, FALLOC_FL_PUNCH_HOLE |
		                                      FALLOC_FL_KEEP_SIZE,
		                           0, MIB) == 0, alias);
		ck_assert_int_eq(fcntl(f, F_ADD_SEALS, F_SEAL_WRITE), -1);
	}
	/* All of it can be read, also after what the sender did. */
	if (alias)
		ck_bytes(data(p.storage), MIB, 0);
	else
		ck_pattern(data(p.storage), PAGE, 5);
	fill(mut(p.storage), MIB, 6);
	ck_pattern(data(p.storage), MIB, 6);
	cow_storage_unref(p.storage);
	close(fd);
	close(again);
	victim_free(&v);
}
END_TEST

/* The other way round: a hostile receiver of what we send. */
START_TEST(receiver_cannot_change_what_it_got)
{
	struct cow_storage *s = new_filled(MIB + 5, 0, 3);
	int fd, again;
	uint64_t offset;
	char path[32];

	ok(cow_storage_export(s, modes[_i], &fd, &offset));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	must(again >= 0);
	ck_assert_int_eq(ftruncate(again, 0), -1);
	ck_assert_int_eq(ftruncate(again, 2 * MIB), -1);
	if (modes[_i] != COW_SHARE_ALIAS) {
		ck_assert_int_eq(pwrite(again, "x", 1, 0), -1);
		ck_assert_int_eq(fcntl(again, F_ADD_SEALS, F_SEAL_GROW), -1);
	}
	ck_pattern(data(s), MIB + 5, 3);
	close(fd);
	close(again);
	cow_storage_unref(s);
}
END_TEST

/* One memfd as several things at once. */
START_TEST(same_file_as_alias_and_sealed)
{
	int fd = memfd_of(MIB, SEALS_SIZE);
	struct raw m = raw_own(fd, MIB, COW_SHARE_ALIAS);
	struct cow_parcel p;
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	raw_put(v.theirs, &m);
	ck_assert_int_eq(take(&v, &p, 1), 1);
	v.fds = footprint_now().fds;
	m.items[0].mode = COW_SHARE_SEALED;
	raw_put(v.theirs, &m);
	refused(&v, -EBADMSG);
	m = raw_own(fd, PAGE, COW_SHARE_ALIAS); /* another size */
	raw_put(v.theirs, &m);
	refused(&v, -EBADMSG);
	ck_pattern(data(p.storage), PAGE, 5);
	cow_storage_unref(p.storage);
	close(fd);
	victim_free(&v);
}
END_TEST

START_TEST(alias_that_was_not_asked_for)
{
	int fd = memfd_of(MIB, SEALS_SIZE);
	struct raw m = raw_own(fd, MIB, COW_SHARE_ALIAS);
	struct victim v;

	victim_make_with(&v, SOCK_STREAM, NULL, 0);
	raw_put(v.theirs, &m);
	close(fd);
	v.fds = footprint_now().fds;
	refused(&v, -EACCES);
	victim_free(&v);
}
END_TEST

/* All or nothing: a bad item takes the good ones along. */
START_TEST(one_bad_item_among_good_ones)
{
	int fd = memfd_of(MIB, SEALS_ALL), bad = unsealed();
	struct raw m = raw_own(fd, MIB, COW_SHARE_SEALED);
	struct footprint before, after;
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	before = footprint_now();
	m.items[2] = m.items[1] = m.items[0];
	m.items[1].file_offset = 0;
	m.items[2].index = 1;
	m.fds[1] = bad;
	m.nitems = m.head.items = 3;
	m.nfds = m.head.fds = 2;
	raw_size(&m);
	raw_put(v.theirs, &m);
	refused(&v, -EBADMSG);
	after = footprint_now();
	ck_assert_uint_eq(after.storages_live, before.storages_live);
	ck_assert_int_eq(after.maps, before.maps);
	close(fd);
	close(bad);
	victim_free(&v);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile_files");
	TCase *tcase = add_case(suite, "hostile_files");

	for (int i = 0; i < (int)COUNT(instead); i++)
		if (is_there(instead[i]))
			tcase_add_loop_test(tcase, no_sealed_memfd, i, i + 1);
		else
			printf("skip no_sealed_memfd:%d this machine has no %s\n", i,
			       instead[i] == a_file ? "file in /var/tmp" : "huge pages");
	for (int i = 0; i < (int)COUNT(lacks_one); i++)
		if (seals_are_known(lacks_one[i].seals))
			tcase_add_loop_test(tcase, one_seal_is_not_set, i, i + 1);
		else
			printf("skip one_seal_is_not_set:%d this kernel lacks a seal\n", i);
	tcase_add_loop_test(tcase, alias_that_cannot_be_written, 0, 3);
	tcase_add_test(tcase, sizes_that_no_process_has);
	tcase_add_test(tcase, offsets_beyond_the_end);
	tcase_add_loop_test(tcase, truncate_and_write_after_sending, 0, 3);
	tcase_add_loop_test(tcase, receiver_cannot_change_what_it_got, 0, 3);
	tcase_add_test(tcase, same_file_as_alias_and_sealed);
	tcase_add_test(tcase, alias_that_was_not_asked_for);
	tcase_add_test(tcase, one_bad_item_among_good_ones);
	return run_suite(suite);
}
