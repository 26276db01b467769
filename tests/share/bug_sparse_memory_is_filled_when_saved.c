/* SPDX-License-Identifier: MIT */
/*
 * A sparse storage that is saved to a file
 *
 * The write read the holes, and a read of a hole makes its pages.
 */
#include "tests/support/folder.h"
#include "tests/support/support.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BYTES (256 * MIB + 4 * PAGE + 5)
#define MOST (40 * MIB) /* huge pages around what is touched, and what is made ahead */

/* At both sides of where huge pages meet, and at the end. */
static const size_t touched[] = { 6 * MIB - 1, 6 * MIB, 77 * MIB + 123, 130 * MIB, BYTES - 1 };
static const uint32_t ways[] = { 0, COW_IO_PLAIN, COW_IO_DIRECT, COW_SAVE_ATOMIC,
	                         COW_SAVE_ATOMIC | COW_IO_DIRECT };

static void expected(unsigned char *part, size_t at, size_t n)
{
	memset(part, 0, n);
	for (size_t i = 0; i < COUNT(touched); i++)
		if (touched[i] >= at && touched[i] - at < n)
			part[touched[i] - at] = (unsigned char)(i + 1);
}

static void ck_saved(const char *path, uint64_t offset)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	static unsigned char part[MIB], right[MIB];

	must(fd >= 0);
	for (size_t at = 0; at < BYTES; at += sizeof(part)) {
		size_t n = BYTES - at < sizeof(part) ? BYTES - at : sizeof(part);

		must(pread(fd, part, n, (off_t)(offset + at)) == (ssize_t)n);
		/* Not byte by byte: that takes ThreadSanitizer minutes. */
		expected(right, at, n);
		if (memcmp(part, right, n) != 0)
			ck_abort_msg("a wrong byte from %zu on", at);
	}
	must(close(fd) == 0);
}

/* By plain calls: memory of the engine's that was used before is not sparse. */
static void other_bytes(const char *path, uint64_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	static unsigned char part[MIB];

	memset(part, 0xee, sizeof(part));
	must(fd >= 0);
	for (uint64_t at = 0; at < bytes; at += sizeof(part))
		must(write(fd, part, sizeof(part)) == (ssize_t)sizeof(part));
	must(ftruncate(fd, (off_t)bytes) == 0 && close(fd) == 0);
}

static struct cow_storage *new_sparse(uint32_t flags)
{
	struct cow_storage *s = new_storage(BYTES, flags);

	for (size_t i = 0; i < COUNT(touched); i++)
		mut_range(s, touched[i], 1, COW_WRITE_SPARSE)[touched[i]] = (unsigned char)(i + 1);
	return s;
}

/* The file had other bytes before. _i % 2: some of the memory was copied page by page. */
START_TEST(saved)
{
	uint64_t before = memory_held(), offset = _i < 6 ? _i / 2 * PAGE : 0, done;
	const char *path = in_folder("file");
	struct cow_storage *s = new_sparse(_i % 2 ? COW_STORAGE_TRANSPARENT : 0), *b = NULL;

	other_bytes(path, BYTES + offset);
	if (_i % 2) {
		b = lazy(s);
		mut_range(s, touched[3], 1, COW_WRITE_BY_PAGE)[touched[3]] = 4;
	}
	ok(cow_storage_save(s, path, offset, ways[_i / 2], &done));
	ck_assert_uint_eq(done, BYTES);
	ck_saved(path, offset);
	if (memory_held() > before + MOST)
		ck_abort_msg("%llu MiB of untouched memory were filled",
		             (unsigned long long)((memory_held() - before) / MIB));
	cow_storage_unref(b);
	cow_storage_unref(s);
}
END_TEST

/* To a descriptor, from its position on. */
START_TEST(saved_to_a_descriptor)
{
	const char *path = in_folder("file");
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct cow_storage *s = new_sparse(0);
	uint64_t before = memory_held(), done;

	must(fd >= 0 && write(fd, "abc", 3) == 3);
	ok(cow_storage_save_fd(s, fd, COW_FROM_HERE, 0, &done));
	ck_assert_uint_eq(done, BYTES);
	ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), (off_t)(BYTES + 3));
	ck_saved(path, 3);
	ck_assert(memory_held() <= before + MOST);
	must(close(fd) == 0);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_sparse_memory_is_filled_when_saved");
	TCase *all = add_case(suite, "sparse");

	tcase_add_checked_fixture(all, enter, leave);
	tcase_add_loop_test(all, saved, 0, 2 * COUNT(ways));
	tcase_add_test(all, saved_to_a_descriptor);
	return run_suite(suite);
}
