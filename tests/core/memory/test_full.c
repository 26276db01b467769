/* SPDX-License-Identifier: MIT */
/*
 * A full file system: shortages are errors, and pass
 *
 * Each test has a mount namespace with 4 MiB of shared memory in /dev/shm, which
 * others fill. What is asked for beyond it is refused when it is asked for; no
 * touch is a SIGBUS later; what was there is as it was; nothing half made stays;
 * and as soon as there is room the same call succeeds.
 */
#include "tests/support/support.h"
#include "tests/support/namespaces.h"

#include <cowshed-file.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ROOM (4 * MIB)
#define SHM (COW_FILE_SHM | COW_FILE_SHARED)

/* This process alone has a /dev/shm of ROOM. */
static int small_shm(void)
{
	return own_tmpfs("/dev/shm", "size=4m,mode=700");
}

/* Takes all room but `left`, in a file of its own. */
static void crowd(size_t left)
{
	struct statvfs v;
	int fd = open("/dev/shm/others", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	must(fd >= 0 && statvfs("/dev/shm", &v) == 0);
	must((size_t)v.f_bavail * v.f_bsize >= left);
	must(v.f_bavail * v.f_bsize == left ||
	     posix_fallocate(fd, 0, (off_t)(v.f_bavail * v.f_bsize - left)) ==
	             0);
	close(fd);
}

static void make_room(void)
{
	must(unlink("/dev/shm/others") == 0);
}

static int names(void)
{
	DIR *d = opendir("/dev/shm");
	int n = -2;

	must(d != NULL);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void ck_file(const char *path, size_t bytes, uint64_t seed)
{
	struct cow_storage *s;
	struct stat st;

	must(stat(path, &st) == 0);
	ck_assert_uint_eq((size_t)st.st_size, bytes);
	ok(cow_storage_load(path, 0, COW_TO_END, 0, &s));
	ck_pattern(data(s), bytes, seed);
	cow_storage_unref(s);
}

START_TEST(named_storages)
{
	const uint32_t flags = SHM | (_i & 1 ? COW_FILE_COUNTED : 0);
	struct cow_storage *s = NULL, *old;

	must(small_shm() == 0);
	ok(cow_storage_open("/old", MIB, flags, &old));
	fill(mut(old), MIB, 1);
	crowd(MIB);
	fails(-ENOSPC, cow_storage_open("/new", 2 * MIB, flags, &s));
	ck_assert_int_eq(names(), 2); /* the old one and the others' */
	/* Longer than it is: it keeps its size and its bytes. */
	if (!(_i & 1)) {
		fails(-ENOSPC, cow_storage_open("/old", 3 * MIB, flags, &s));
		ck_file("/dev/shm/old", MIB, 1);
	}
	ck_assert_ptr_null(s);
	ck_pattern(data(old), MIB, 1);
	/* To the last byte, and each of them can be written. */
	ok(cow_storage_open("/new", MIB, flags, &s));
	crowd(0);
	fill(mut(s), MIB, 2);
	fill(mut(old), MIB, 3);
	ck_pattern(data(s), MIB, 2);
	cow_storage_unref(s);
	if (!(_i & 1))
		ok(cow_shm_unlink("/new"));
	make_room();
	ok(cow_storage_open("/new", 2 * MIB, flags, &s));
	ck_bytes(data(s), 2 * MIB, 0);
	fill(mut(s), 2 * MIB, 4);
	ck_pattern(data(old), MIB, 3);
	cow_storage_unref(s);
	cow_storage_unref(old);
	ck_assert_int_eq(names(), _i & 1 ? 0 : 2);
}
END_TEST

START_TEST(saving)
{
	const uint32_t how[] = { 0, COW_SAVE_ATOMIC, COW_IO_PLAIN,
		                 COW_SAVE_ATOMIC | COW_SAVE_SYNC };
	struct cow_storage *s = new_filled(3 * MIB, 0, 1), *clone;
	uint64_t done = 99;
	bool atomic = how[_i] & COW_SAVE_ATOMIC;
	const char *path = "/dev/shm/saved";

	must(small_shm() == 0);
	ok(cow_storage_save(s, path, 0, how[_i], NULL));
	ck_file(path, 3 * MIB, 1);
	must(atomic || unlink(path) == 0);
	crowd(atomic ? 0 : MIB);
	clone = lazy(s);
	fill(mut(s), 3 * MIB, 2);
	fails(-ENOSPC, cow_storage_save(s, path, 0, how[_i], &done));
	/* The old file, or as much as is said. */
	if (atomic) {
		ck_assert_uint_eq(done, 0);
		ck_file(path, 3 * MIB, 1);
		ck_assert_int_eq(names(), 2);
	} else {
		ck_assert_uint_le(done, MIB);
		ck_assert_uint_ge(done, MIB - 64 * KIB);
	}
	ck_pattern(data(s), 3 * MIB, 2);
	ck_pattern(data(clone), 3 * MIB, 1);
	make_room();
	/* Both are there for a moment. */
	if (atomic)
		must(mount("none", "/dev/shm", "tmpfs", MS_REMOUNT,
		           "size=8m,mode=700") == 0);
	ok(cow_storage_save(s, path, 0, how[_i], &done));
	ck_assert_uint_eq(done, 3 * MIB);
	ck_file(path, 3 * MIB, 2);
	ck_assert_int_eq(names(), 1);
	cow_storage_unref(clone);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("full");
	TCase *tcase = add_case(suite, "full");

	if (!may_own_tmpfs("/dev/shm")) {
		puts("full: skipped, for this user gets no mount namespace");
		return 77;
	}
	tcase_add_loop_test(tcase, named_storages, 0, 2);
	tcase_add_loop_test(tcase, saving, 0, 4);
	return run_suite(suite);
}
