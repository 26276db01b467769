/* SPDX-License-Identifier: MIT */
/*
 * Files, load and save, with every kernel call failing in turn
 *
 * tests/support/fault/sweep.h says what must hold. Besides, a failure leaves no name behind;
 * a file that was there has its bytes, or (in place) is no shorter; and a failure of a ring
 * is no failure of the call.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"
#include "tests/support/folder.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define SHM (COW_FILE_SHM | COW_FILE_SHARED)
enum { BYTES = (3 << 20) + 5000 };

static int folder_names(void)
{
	return entries(folder, "") + entries("/dev/shm", shm + 1);
}

/* After a failure there are no more names than before, and the old file is as it was. */
static int nothing_left(int r, int names, const char *path)
{
	if (r < 0) {
		ck_assert_int_eq(folder_names(), names);
		ck_assert_int_eq(entries(folder, ".cowshed"), 0);
		if (path) {
			ck_assert_uint_eq(size_of(path), BYTES);
			ck_file(path, 0, BYTES, 1);
		}
	}
	return r;
}

static void nobody(struct herd *herd)
{
	(void)herd;
}

static int opened(const char *name, uint32_t flags, bool known)
{
	int names = folder_names();
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_open(name, BYTES, flags, &s);

	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		must(cow_last_error()[0] != '\0');
		/* Whether a counted one has other users can't be asked then: it is left
		 * to the next one, which is the second try. */
		if ((flags & COW_FILE_COUNTED) && fault_lasts())
			return r;
		return nothing_left(r, names, known ? name : NULL);
	}
	if (known)
		ck_pattern(data(s), BYTES, 1);
	fill(mut(s), BYTES, 1);
	/* Its end is no part of what may fail. */
	(void)fault_disarm();
	cow_storage_unref(s);
	if (flags & COW_FILE_COUNTED)
		ck_assert_int_eq(folder_names(), 0);
	return 0;
}

static int open_counted(struct herd *herd)
{
	(void)herd;
	return opened(shm, SHM | COW_FILE_COUNTED, false);
}

static int open_unlinked(struct herd *herd)
{
	(void)herd;
	return opened(shm, SHM | COW_FILE_EXCLUSIVE | COW_FILE_UNLINK |
	                           COW_FILE_KEEP_FD, false);
}

static int open_named(struct herd *herd)
{
	int r;

	(void)herd;
	r = opened(shm, SHM, false);
	if (r == 0)
		ok(cow_shm_unlink(shm));
	return r;
}

static int open_shared(struct herd *herd)
{
	(void)herd;
	return opened(in_folder("old"), COW_FILE_SHARED, true);
}

static int open_private(struct herd *herd)
{
	(void)herd;
	return opened(in_folder("old"), 0, true);
}

static void old_file(struct herd *herd)
{
	int fd = open(in_folder("old"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	static unsigned char bytes[BYTES];

	(void)herd;
	fill(bytes, BYTES, 1);
	must(fd >= 0 && write(fd, bytes, BYTES) == BYTES);
	close(fd);
}

static void filled(struct herd *herd)
{
	old_file(herd);
	sweep_add(herd, HERD_OWNED, new_storage(BYTES, 0), NULL, BYTES);
}

static void exposed(struct herd *herd)
{
	old_file(herd);
	sweep_add(herd, HERD_OWNED, new_storage(BYTES, 0), NULL, BYTES);
	herd->animals[HERD_OWNED].exposed =
		expose(herd->animals[HERD_OWNED].storage);
}

static int load_with(struct herd *herd, uint32_t flags)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_load(in_folder("old"), 0, COW_TO_END, flags, &s);

	(void)herd;
	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	ck_pattern(data(s), BYTES, 1);
	cow_storage_unref(s);
	return 0;
}

static int load(struct herd *herd)
{
	return load_with(herd, 0);
}

static int load_direct(struct herd *herd)
{
	return load_with(herd, COW_IO_DIRECT);
}

static int load_plain(struct herd *herd)
{
	return load_with(herd, COW_IO_PLAIN);
}

static int save_with(struct herd *herd, const char *name, uint32_t flags)
{
	const struct animal *a = &herd->animals[HERD_OWNED];
	const char *path = in_folder(name);
	bool atomic = flags & COW_SAVE_ATOMIC;
	int names = folder_names(), r;
	uint64_t done = 77;

	r = cow_storage_save(a->storage, path, 0, flags, &done);
	if (r < 0) {
		must(cow_last_error()[0] != '\0');
		/* Only the directory was not synced: the new one is complete. */
		if (atomic)
			ck_assert_uint_eq(done, strstr(cow_last_error(), "syncing the directory")
			                                ? BYTES : 0);
		if (atomic && done == 0)
			nothing_left(r, names, path);
		else
			ck_file(path, 0, done, a->seed);
		return r;
	}
	ck_assert_uint_eq(done, BYTES);
	ck_file(path, 0, BYTES, a->seed);
	return 0;
}

static int save(struct herd *herd)
{
	return save_with(herd, "old", 0);
}

static int save_plain(struct herd *herd)
{
	return save_with(herd, "old", COW_IO_PLAIN);
}

static int save_all(struct herd *herd)
{
	return save_with(herd, "old", COW_IO_DIRECT | COW_SAVE_ATOMIC |
	                                      COW_SAVE_SYNC | COW_SAVE_TRUNCATE);
}

/* ---- By descriptors --------------------------------------------------------------- */

static int by_number = -1;

static void old_number(struct herd *herd)
{
	filled(herd);
	if (by_number >= 0)
		close(by_number);
	by_number = open(in_folder("old"), O_RDWR | O_CLOEXEC);
	must(by_number >= 0);
}

static int open_fd_with(uint32_t flags)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_open_fd(by_number, PAGE, BYTES - PAGE, flags, &s);
	int fd = -77, again;

	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		must(cow_last_error()[0] != '\0');
		ck_file(in_folder("old"), 0, BYTES, 1);
		return r;
	}
	must(cow_storage_file_name(s) == NULL);
	r = cow_storage_file_fd(s, &fd);
	(void)fault_disarm();
	if (r == 0) {
		close(fd);
	} else {
		must(cow_last_error()[0] != '\0');
		ck_assert_int_eq(fd, -77);
		again = cow_storage_file_fd(s, &fd);
		ck_assert_int_eq(again, flags & COW_FILE_KEEP_FD ? 0 : -ENOENT);
		if (again == 0)
			close(fd);
		else
			r = 0;
	}
	ck_file(in_folder("old"), 0, BYTES, 1);
	cow_storage_unref(s);
	return r;
}

static int open_fd(struct herd *herd)
{
	(void)herd;
	return open_fd_with(COW_FILE_SHARED | COW_FILE_KEEP_FD);
}

static int open_fd_private(struct herd *herd)
{
	(void)herd;
	return open_fd_with(0);
}

static int load_fd_from(uint64_t offset)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r;

	must(lseek(by_number, 0, SEEK_SET) == 0);
	r = cow_storage_load_fd(by_number, offset, BYTES, 0, &s);
	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	ck_pattern(data(s), BYTES, 1);
	cow_storage_unref(s);
	return 0;
}

static int load_fd(struct herd *herd)
{
	(void)herd;
	return load_fd_from(0);
}

static int load_fd_here(struct herd *herd)
{
	(void)herd;
	return load_fd_from(COW_FROM_HERE);
}

static int save_fd_with(struct herd *herd, uint64_t offset)
{
	const struct animal *a = &herd->animals[HERD_OWNED];
	uint64_t done = 77;
	int r;

	must(lseek(by_number, 0, SEEK_SET) == 0);
	r = cow_storage_save_fd(a->storage, by_number, offset,
	                        COW_SAVE_SYNC | COW_SAVE_TRUNCATE, &done);
	if (r < 0)
		must(cow_last_error()[0] != '\0');
	else
		ck_assert_uint_eq(done, BYTES);
	ck_file(in_folder("old"), 0, done, a->seed);
	return r;
}

static int save_fd(struct herd *herd)
{
	return save_fd_with(herd, 0);
}

static int save_fd_here(struct herd *herd)
{
	return save_fd_with(herd, COW_FROM_HERE);
}

static int unlink_shm(struct herd *herd)
{
	int r;

	(void)herd;
	if (entries("/dev/shm", shm + 1) == 0) {
		int fd = shm_open(shm, O_CREAT | O_RDWR, 0600);

		must(fd >= 0);
		close(fd);
	}
	r = cow_shm_unlink(shm);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), r < 0);
	return r;
}

static const struct operation operations[] = {
	{ "open counted", nobody, open_counted },
	{ "open unlinked", nobody, open_unlinked },
	{ "open named", nobody, open_named },
	{ "open shared", old_file, open_shared },
	{ "open private", old_file, open_private },
	{ "load", old_file, load },
	{ "load direct", old_file, load_direct },
	{ "load plain", old_file, load_plain },
	{ "save", filled, save },
	{ "save exposed", exposed, save },
	{ "save plain", filled, save_plain },
	{ "save atomic, synced, direct", filled, save_all },
	{ "open a descriptor", old_number, open_fd },
	{ "open a descriptor, private", old_number, open_fd_private },
	{ "load a descriptor", old_number, load_fd },
	{ "load from here", old_number, load_fd_here },
	{ "save to a descriptor", old_number, save_fd },
	{ "save here", old_number, save_fd_here },
	{ "unlink", nobody, unlink_shm },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
	if (by_number >= 0)
		close(by_number);
}
END_TEST

static const long ring_calls[] = { SYS_io_uring_setup, SYS_io_uring_enter,
	                           SYS_io_uring_register };

/* A kernel without rings, or with rings that don't work, only makes it slower. */
START_TEST(rings_are_denied)
{
	struct cow_storage *s = new_filled(9 * MIB, 0, 1), *t;
	const char *path = in_folder("new");
	uint32_t flags = _i / 3 ? COW_IO_DIRECT : 0;

	fault_deny(ring_calls[_i % 3], FAULT_ANY, 0, EPERM);
	ok(cow_storage_save(s, path, 0, flags, NULL));
	ok(cow_storage_load(path, 0, COW_TO_END, flags, &t));
	ck_pattern(data(t), 9 * MIB, 1);
	if (_i % 3 < 2 || flags)
		ck_assert_uint_gt(fault_denials(), 0);
	cow_storage_unref(t);
	cow_storage_unref(s);
}
END_TEST

/* A user who may not read the old file can't open the new one at any moment: here its mode
 * stays the one that it was made with. */
START_TEST(made_for_its_owner_alone)
{
	struct cow_storage *s = new_filled(MIB, 0, 1);
	const char *path = in_folder("private");
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	struct stat st;

	must(fd >= 0 && close(fd) == 0);
	umask(022);
	fault_deny(SYS_fchmod, FAULT_ANY, 0, FAULT_IGNORED);
	ok(cow_storage_save(s, path, 0, COW_SAVE_ATOMIC, NULL));
	ck_assert_uint_gt(fault_denials(), 0);
	must(stat(path, &st) == 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	cow_storage_unref(s);
}
END_TEST

/* A directory that can't be synced is found before anything is changed. */
START_TEST(a_directory_that_may_not_be_read)
{
	struct cow_storage *s = new_filled(MIB, 0, 2);
	const char *path = in_folder("old"), *none = in_folder("none");
	uint32_t flags = COW_SAVE_SYNC | (_i ? COW_SAVE_ATOMIC : 0);

	make_file(path, MIB, 1);
	fault_deny(SYS_openat, 2, O_RDONLY | O_DIRECTORY | O_CLOEXEC, EACCES);
	fails(-EACCES, cow_storage_save(s, path, 0, flags, NULL));
	ck_file(path, 0, MIB, 1);
	fails(-EACCES, cow_storage_save(s, none, 0, flags, NULL));
	ck_assert_int_eq(folder_names(), 1);
	ok(cow_storage_save(s, path, 0, flags & ~COW_SAVE_SYNC, NULL));
	ck_file(path, 0, MIB, 2);
	cow_storage_unref(s);
}
END_TEST

/* File systems that don't know O_DIRECT, or refuse it. */
START_TEST(without_fallocate)
{
	static const int errors[] = { EOPNOTSUPP, EINVAL, ENOSYS };
	struct cow_storage *s;

	fault_deny(SYS_fallocate, FAULT_ANY, 0, errors[_i]);
	ok(cow_storage_open(shm, BYTES, SHM | COW_FILE_UNLINK, &s));
	ck_assert_uint_gt(fault_denials(), 0);
	ck_bytes(data(s), BYTES, 0);
	fill(mut(s), BYTES, 1);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_file");
	TCase *tcase = add_case(suite, "fault_file");

	tcase_add_checked_fixture(tcase, enter, leave);
	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	tcase_add_loop_test(tcase, rings_are_denied, 0, 6);
	tcase_add_test(tcase, made_for_its_owner_alone);
	tcase_add_loop_test(tcase, a_directory_that_may_not_be_read, 0, 2);
	tcase_add_loop_test(tcase, without_fallocate, 0, 3);
	return run_suite(suite);
}
