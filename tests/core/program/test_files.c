/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of mapped files: they live as long as a part of the mapping
 *
 * They are looked for as cowshed.writable() does it: by device and inode, among the numbers
 * of this process.
 */
#include "core/program/files.h"
#include "tests/support/support.h"

#include <cowshed.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 8 };
static const size_t bytes = PAGES * PAGE;

/* A new file without a name, of so many bytes. */
static int new_file(size_t size)
{
	char path[] = "/tmp/cowshed-files-XXXXXX";
	int fd = mkstemp(path);

	must(fd >= 0 && unlink(path) == 0 && ftruncate(fd, (off_t)size) == 0);
	return fd;
}

static struct stat facts(int fd)
{
	struct stat st;

	must(fstat(fd, &st) == 0);
	return st;
}

/* How many numbers of this process are descriptors of that file; *ret: the last one. */
static int open_of(const struct stat *file, int *ret)
{
	struct stat st;
	int n = 0;

	for (int fd = 0; fd < 8192; fd++)
		if (fstat(fd, &st) == 0 && st.st_dev == file->st_dev &&
		    st.st_ino == file->st_ino) {
			n++;
			if (ret)
				*ret = fd;
		}
	return n;
}

static uintptr_t map(int fd)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	must(p != MAP_FAILED);
	return (uintptr_t)p;
}

/* Parts of the mapping in the order in which they end: first page, number of pages. */
static const int orders[][PAGES][2] = {
	{ { 0, 8 } },
	{ { 0, 3 }, { 3, 5 } },
	{ { 5, 3 }, { 0, 5 } },
	{ { 3, 2 }, { 0, 3 }, { 5, 3 } },
	{ { 3, 1 }, { 0, 3 }, { 6, 2 }, { 4, 2 } },
};

START_TEST(as_long_as_a_part_is_mapped)
{
	int fd = new_file(bytes), kept = -1;
	uintptr_t p = map(fd);
	struct stat file = facts(fd);

	cow__files_keep(p, bytes, fd);
	close(fd);
	ck_assert_int_eq(open_of(&file, &kept), 1);
	ck_assert_int_eq(fcntl(kept, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(kept, F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_uint_eq(cow__files_kept, 1);
	cow__files_forget(p - PAGE, PAGE);
	cow__files_forget(p + bytes, PAGE);
	for (int i = 0; i < PAGES && orders[_i][i][1]; i++) {
		const int *part = orders[_i][i];

		ck_assert_int_ge(open_of(&file, NULL), 1);
		/* A length that is no multiple of a page is one of whole pages. */
		cow__files_forget(p + (size_t)part[0] * PAGE, (size_t)part[1] * PAGE - 1);
	}
	ck_assert_int_eq(open_of(&file, NULL), 0);
	ck_assert_uint_eq(cow__files_kept, 0);
	must(munmap((void *)p, bytes) == 0);
}
END_TEST

START_TEST(one_range_over_several)
{
	int a = new_file(bytes), b = new_file(bytes);
	struct stat first = facts(a), second = facts(b);
	uintptr_t p = (uintptr_t)1 << 44;

	cow__files_keep(p, bytes, a);
	cow__files_keep(p + 2 * bytes, bytes, b);
	close(a);
	close(b);
	cow__files_forget(p + PAGE, 3 * bytes); /* a part of the first, and the second */
	ck_assert_int_eq(open_of(&first, NULL), 1);
	ck_assert_int_eq(open_of(&second, NULL), 0);
	cow__files_forget(p, PAGE);
	ck_assert_int_eq(open_of(&first, NULL), 0);
}
END_TEST

START_TEST(it_moves_with_its_mapping)
{
	int fd = new_file(bytes);
	struct stat file = facts(fd);
	uintptr_t p = (uintptr_t)1 << 44, q = p + 16 * bytes;

	cow__files_keep(p, bytes, fd);
	close(fd);
	cow__files_moved(p, bytes, p, 2 * bytes);
	cow__files_moved(p, 2 * bytes, q, bytes);
	cow__files_forget(p, 2 * bytes);
	ck_assert_int_eq(open_of(&file, NULL), 1);
	/* A part moves away: what stays keeps the descriptor. */
	cow__files_moved(q, PAGE, p, PAGE);
	ck_assert_int_eq(open_of(&file, NULL), 1);
	cow__files_moved(q + PAGE, 0, p, PAGE); /* a second mapping of the same pages */
	cow__files_forget(q + PAGE, bytes - PAGE);
	ck_assert_int_eq(open_of(&file, NULL), 0);
}
END_TEST

/* The program closed our number, and opened a file of its own there. */
START_TEST(a_number_that_is_used_again)
{
	int fd = new_file(bytes), other = new_file(PAGE), kept = -1;
	struct stat file = facts(fd), theirs = facts(other);
	uintptr_t p = (uintptr_t)1 << 44;

	cow__files_keep(p, bytes, fd);
	close(fd);
	ck_assert_int_eq(open_of(&file, &kept), 1);
	must(dup2(other, kept) == kept);
	cow__files_forget(p, bytes);
	ck_assert_int_eq(open_of(&theirs, NULL), 2);
	close(kept);
	close(other);
}
END_TEST

START_TEST(a_lock_goes_with_the_programs_descriptor)
{
	int fd = new_file(bytes), again;
	char path[64];
	uintptr_t p = (uintptr_t)1 << 44;

	must(flock(fd, LOCK_EX) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	must(again >= 0 && flock(again, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	cow__files_keep(p, bytes, fd);
	close(fd);
	ck_assert_int_eq(flock(again, LOCK_EX | LOCK_NB), 0);
	close(again);
	cow__files_forget(p, bytes);
}
END_TEST

/* A close of any descriptor would give the lock back. */
START_TEST(a_file_with_a_name_keeps_its_locks)
{
	char path[] = "/tmp/cowshed-files-XXXXXX";
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = mkstemp(path), status;
	uintptr_t p = (uintptr_t)1 << 44;
	pid_t child;

	must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	must(fcntl(fd, F_SETLK, &lock) == 0);
	cow__files_keep(p, bytes, fd);
	ck_assert_uint_eq(cow__files_kept, 0);
	cow__files_forget(p, bytes);
	child = fork();
	must(child >= 0);
	if (child == 0)
		_exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 1);
	must(waitpid(child, &status, 0) == child);
	ck_assert_int_eq(status, 0);
	unlink(path);
	close(fd);
}
END_TEST

START_TEST(what_is_no_file)
{
	int ends[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);

	must(pipe2(ends, O_CLOEXEC) == 0);
	cow__files_keep((uintptr_t)1 << 44, bytes, ends[0]);
	cow__files_keep((uintptr_t)1 << 44, bytes, null);
	cow__files_keep((uintptr_t)1 << 44, bytes, -1);
	cow__files_keep((uintptr_t)1 << 44, bytes, 8191);
	ck_assert_uint_eq(cow__files_kept, 0);
	close(null);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* There are 256 places. What comes then is not kept, and no descriptor is left. */
START_TEST(more_than_there_is_room_for)
{
	enum { MANY = 300, ROOM = 256 };
	int fd = new_file(bytes);
	struct stat file = facts(fd);
	uintptr_t p = (uintptr_t)1 << 44;

	for (size_t i = 0; i < MANY; i++)
		cow__files_keep(p + i * 2 * bytes, bytes, fd);
	close(fd);
	ck_assert_uint_eq(cow__files_kept, ROOM);
	ck_assert_int_eq(open_of(&file, NULL), ROOM);
	cow__files_forget(p, MANY * 2 * bytes);
	ck_assert_int_eq(open_of(&file, NULL), 0);
}
END_TEST

START_TEST(the_option)
{
	ck_assert_uint_eq(cow__files_least, 0);
	ok(cow_option_set("keep-files", "1M"));
	ck_assert_uint_eq(cow__files_least, MIB);
	fails(-EINVAL, cow_option_set("keep-files", "yes"));
	ck_assert_uint_eq(cow__files_least, MIB);
	ok(cow_option_set("keep-files", "0"));
	ck_assert_uint_eq(cow__files_least, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("files");
	TCase *tcase = add_case(suite, "files");

	tcase_add_loop_test(tcase, as_long_as_a_part_is_mapped, 0,
	                    sizeof(orders) / sizeof(orders[0]));
	tcase_add_test(tcase, one_range_over_several);
	tcase_add_test(tcase, it_moves_with_its_mapping);
	tcase_add_test(tcase, a_number_that_is_used_again);
	tcase_add_test(tcase, a_lock_goes_with_the_programs_descriptor);
	tcase_add_test(tcase, a_file_with_a_name_keeps_its_locks);
	tcase_add_test(tcase, what_is_no_file);
	tcase_add_test(tcase, more_than_there_is_room_for);
	tcase_add_test(tcase, the_option);
	return run_suite(suite);
}
