/* SPDX-License-Identifier: MIT */
/*
 * Storages on files and on named shared memory
 */
#include "tests/support/hold.h"

#include "tests/support/folder.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#define SHM (COW_FILE_SHM | COW_FILE_SHARED)
enum { BIG = 9 << 20 };

/* ---- Storages on files ------------------------------------------------------- */

START_TEST(two_processes_share_a_name)
{
	struct cow_storage *s, *again;

	ok(cow_storage_open(shm, BIG, SHM, &s));
	ck_assert_str_eq(cow_storage_file_name(s), shm);
	ck_assert_uint_eq((uintptr_t)data(s) % (size_t)sysconf(_SC_PAGESIZE), 0);
	ck_bytes(data(s), BIG, 0);
	fill(mut(s), BIG, 3);
	ok(cow_storage_open(shm + 1, BIG, SHM | COW_FILE_NO_CREATE, &again));
	ck_pattern(data(again), BIG, 3);
	mut(again)[5] = 99;
	ck_assert_uint_eq(data(s)[5], 99);
	cow_storage_unref(again);
	cow_storage_unref(s);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	ok(cow_shm_unlink(shm));
	fails(-ENOENT, cow_shm_unlink(shm));
}
END_TEST

START_TEST(libc_finds_it_by_the_same_name)
{
	struct cow_storage *s;
	int fd = shm_open(shm, O_RDWR | O_CREAT | O_EXCL, 0600);

	must(fd >= 0 && ftruncate(fd, 5000) == 0);
	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_NO_CREATE, &s));
	mut(s)[4999] = 7;
	ck_assert_int_eq(pread(fd, folder, 1, 4999), 1);
	ck_assert_int_eq(folder[0], 7);
	folder[0] = '/';
	cow_storage_unref(s);
	close(fd);
	must(shm_unlink(shm) == 0);
}
END_TEST

START_TEST(exclusive_and_no_create)
{
	struct cow_storage *s, *t = (void *)1;

	fails(-ENOENT, cow_storage_open(shm, 100, SHM | COW_FILE_NO_CREATE, &t));
	must(strstr(cow_last_error(), shm) != NULL);
	must(strstr(cow_last_error(), "opening") != NULL);
	ok(cow_storage_open(shm, 100, SHM | COW_FILE_EXCLUSIVE, &s));
	fails(-EEXIST, cow_storage_open(shm, 100, SHM | COW_FILE_EXCLUSIVE, &t));
	fails(-ENODATA, cow_storage_open(shm, 101, SHM | COW_FILE_NO_CREATE, &t));
	ck_assert_ptr_eq(t, (void *)1);
	ok(cow_storage_open(shm, 200, SHM, &t)); /* made longer */
	ck_bytes(data(t), 200, 0);
	cow_storage_unref(t);
	cow_storage_unref(s);
	ok(cow_shm_unlink(shm));
}
END_TEST

START_TEST(unlinked_at_once_with_a_descriptor)
{
	struct cow_storage *s, *t;
	int fd = -1;

	ok(cow_storage_open(shm, BIG,
	                    SHM | COW_FILE_EXCLUSIVE | COW_FILE_UNLINK |
	                            COW_FILE_KEEP_FD,
	                    &s));
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	fill(mut(s), BIG, 4);
	ok(cow_storage_file_fd(s, &fd));
	ok(cow_storage_open_fd(fd, 4096 + 12, 5000, COW_FILE_SHARED, &t));
	close(fd);
	cow_storage_unref(s);
	fails(-ENOENT, cow_storage_file_fd(t, &fd));
	ck_assert_ptr_null(cow_storage_file_name(t));
	mut(t)[0] = 1;
	cow_storage_unref(t);
}
END_TEST

START_TEST(names_that_are_none)
{
	static const char *names[] = { "", "/", ".", "..", "/..", "a/b", "/a/../b",
		                       "../etc/x" };
	struct cow_storage *s = (void *)1;
	char longer[400];

	for (unsigned i = 0; i < 8; i++)
		fails(-EINVAL, cow_storage_open(names[i], 10, SHM, &s));
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	fails(-ENAMETOOLONG, cow_storage_open(longer, 10, SHM, &s));
	fails(-ENAMETOOLONG, cow_shm_unlink(longer));
	fails(-EINVAL, cow_storage_open(shm, 10, 32, &s));
	fails(-EINVAL, cow_storage_open(shm, 10, COW_FILE_SHM, &s));
	fails(-EINVAL, cow_storage_open(shm, 10, COW_FILE_EXCLUSIVE, &s));
	fails(-EINVAL, cow_storage_open(shm, 10, COW_FILE_SHARED | COW_FILE_COUNTED,
	                                &s));
	fails(-EINVAL, cow_storage_open(NULL, 10, SHM, &s));
	ck_assert_ptr_eq(s, (void *)1);
}
END_TEST

START_TEST(nothing_opens_nothing)
{
	struct cow_storage *s;

	ok(cow_storage_open(shm, 0, SHM, &s));
	ck_assert_ptr_null(cow_storage_data(s));
	cow_storage_unref(s);
	ok(cow_storage_open("/no/such/folder", 0, 0, &s));
	cow_storage_unref(s);
}
END_TEST

static void write_private(void *arg)
{
	fill(mut(arg), 8000, 77);
	ck_pattern(data(arg), 8000, 77);
}

START_TEST(private_and_shared_files)
{
	const char *path = in_folder("file");
	struct cow_storage *p, *s, *clone;

	fails(-ENOENT, cow_storage_open(path, 10, 0, &p));
	ok(cow_storage_open(path, 8000, COW_FILE_SHARED, &s));
	ck_assert_uint_eq(size_of(path), 8000);
	fill(mut(s), 8000, 1);
	fails(-ENODATA, cow_storage_open(path, 8001, 0, &p));
	ok(cow_storage_open(path, 8000, 0, &p));
	ck_pattern(data(p), 8000, 1);
	fill(mut(p), 8000, 2);
	ck_pattern(data(s), 8000, 1);
	ok(cow_storage_lazy_clone(s, &clone));
	fill(mut(s), 8000, 3);
	ck_pattern(data(clone), 8000, 1);
	ck_pattern(data(p), 8000, 2);
	in_child(write_private, p);
	ck_pattern(data(p), 8000, 2);
	in_child(write_private, s);
	ck_pattern(data(s), 8000, 77);
	ck_file(path, 0, 8000, 77);
	fails(-EPERM, cow_storage_resize(s, 10));
	cow_storage_unref(clone);
	cow_storage_unref(p);
	cow_storage_unref(s);
	ck_assert_uint_eq(size_of(path), 8000);
}
END_TEST

START_TEST(descriptors_that_do_not_fit)
{
	struct cow_storage *s = (void *)1;
	const char *path = in_folder("file");
	int ends[2], fd;

	make_file(path, 5000, 1);
	must(pipe(ends) == 0);
	fails(-EBADF, cow_storage_open_fd(-1, 0, 10, 0, &s));
	fails(-ENODEV, cow_storage_open_fd(ends[0], 0, 10, 0, &s));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	fails(-EBADF, cow_storage_open_fd(fd, 0, 10, COW_FILE_SHARED, &s));
	fails(-ENODATA, cow_storage_open_fd(fd, 4999, 2, 0, &s));
	fails(-EINVAL, cow_storage_open_fd(fd, UINT64_MAX, 2, 0, &s));
	fails(-EINVAL, cow_storage_open_fd(fd, INT64_MAX, 2, 0, &s));
	ck_assert_ptr_eq(s, (void *)1);
	ok(cow_storage_open_fd(fd, 4999, 1, 0, &s));
	cow_storage_unref(s);
	fails(-EISDIR, cow_storage_open(folder, 10, 0, &s));
	close(fd);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* posix_fallocate gave 28 with errno 0, and the name stayed. */
START_TEST(a_full_shm_leaves_nothing)
{
	struct cow_storage *s = (void *)1, *small;
	struct statvfs all;
	size_t too_much;

	must(statvfs("/dev/shm", &all) == 0);
	too_much = 2 * (all.f_blocks ? all.f_blocks * all.f_frsize : (size_t)1 << 44);
	fails(-ENOSPC, cow_storage_open(shm, too_much, SHM, &s));
	must(strstr(cow_last_error(), shm) != NULL);
	must(strstr(cow_last_error(), "allocating shared memory") != NULL);
	must(strstr(cow_last_error(), "no space") != NULL);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	fails(-ENOSPC, cow_storage_open(shm, too_much,
	                                SHM | COW_FILE_COUNTED, &s));
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	/* One that is there keeps its size. */
	ok(cow_storage_open(shm, 5000, SHM, &small));
	fails(-ENOSPC, cow_storage_open(shm, too_much, SHM, &s));
	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_NO_CREATE, &s));
	fails(-ENODATA, cow_storage_open(shm, 5001, SHM | COW_FILE_NO_CREATE,
	                                 &(struct cow_storage *){ NULL }));
	cow_storage_unref(s);
	cow_storage_unref(small);
	ok(cow_shm_unlink(shm));
}
END_TEST

static void limited(void *arg)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };
	struct cow_storage *s = new_filled(2 << 20, 0, 1), *t;
	uint64_t done = 9;

	(void)arg;
	must(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	/* No SIGXFSZ. */
	fails(-EFBIG, cow_storage_open(shm, 2 << 20, SHM, &t));
	fails(-EFBIG, cow_storage_save(s, in_folder("large"), 0, 0, &done));
	ck_assert_uint_eq(done, 0);
	fails(-EFBIG, cow_storage_save(s, in_folder("large"), 0, COW_SAVE_ATOMIC,
	                               &done));
	cow_storage_unref(s);
}

START_TEST(beyond_the_size_limit)
{
	in_child(limited, NULL);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	ck_assert_int_eq(entries(folder, "cowshed"), 0);
}
END_TEST

/* ---- Counted ------------------------------------------------------------------- */

static void use_counted(void *arg)
{
	struct cow_storage *s;

	(void)arg;
	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED, &s));
	mut(s)[0]++;
	cow_storage_unref(s);
}

START_TEST(the_last_one_removes_the_name)
{
	struct cow_storage *a, *b;

	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED, &a));
	mut(a)[0] = 1;
	in_child(use_counted, NULL);
	ck_assert_uint_eq(data(a)[0], 2);
	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED, &b));
	cow_storage_unref(a);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	cow_storage_unref(b);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
}
END_TEST

/* A name that was made without COUNTED, or by users that were killed. */
START_TEST(a_name_that_was_there_stays_after_a_failure)
{
	const uint32_t flags = SHM | COW_FILE_COUNTED | (_i ? 0 : COW_FILE_NO_CREATE);
	struct rlimit old, small;
	struct cow_storage *s = (void *)1;
	char bytes[4];
	int fd = shm_open(shm, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, "kept", 4) == 4);
	if (_i) {
		must(getrlimit(RLIMIT_FSIZE, &old) == 0);
		small = (struct rlimit){ 100, old.rlim_max };
		must(setrlimit(RLIMIT_FSIZE, &small) == 0);
	}
	fails(_i ? -EFBIG : -ENODATA, cow_storage_open(shm, 5000, flags, &s));
	if (_i)
		must(setrlimit(RLIMIT_FSIZE, &old) == 0);
	ck_assert_ptr_eq(s, (void *)1);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	must(pread(fd, bytes, 4, 0) == 4 && memcmp(bytes, "kept", 4) == 0);
	close(fd);
	ok(cow_shm_unlink(shm));
}
END_TEST

static void inherit_counted(void *arg)
{
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	cow_storage_unref(arg);
}

START_TEST(a_child_counts)
{
	struct cow_storage *s;

	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED, &s));
	in_child(inherit_counted, s);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	cow_storage_unref(s);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
}
END_TEST

static void *open_one(void *arg)
{
	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED,
	                    (struct cow_storage **)arg));
	return NULL;
}

/* Stopped between opening the file and locking it; meanwhile its last user leaves. */
START_TEST(opened_before_the_last_one_went)
{
	struct cow_storage *last, *late = NULL, *third;
	pthread_t thread;

	ok(cow_option_set("helper", "no"));
	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED, &last));
	mut(last)[0] = 1;
	hold_at(SYS_fcntl, HOLD_ADVICE_ANY);
	must(pthread_create(&thread, NULL, open_one, &late) == 0);
	must(wait_until(hold_is_on, NULL, 20));
	cow_storage_unref(last);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	hold_release();
	pthread_join(thread, NULL);
	ck_bytes(data(late), 5000, 0);
	mut(late)[0] = 7;
	ok(cow_storage_open(shm, 5000,
	                    SHM | COW_FILE_COUNTED | COW_FILE_NO_CREATE, &third));
	ck_assert_uint_eq(data(third)[0], 7);
	cow_storage_unref(third);
	cow_storage_unref(late);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
}
END_TEST

/* The last user has the lock while it removes the name, and may be stopped there. A process
 * that opens the name waits after some tries, and is stopped while it waits. 1: for longer than
 * the second that it would wait. */
START_TEST(the_last_one_takes_its_time)
{
	struct flock all = { .l_type = F_WRLCK, .l_len = 1 };
	struct cow_storage *first, *s = NULL;
	pthread_t thread;
	int fd;

	ok(cow_option_set("helper", "no"));

	ok(cow_storage_open(shm, 5000, SHM, &first));
	fd = shm_open(shm, O_RDWR | O_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &all), 0);
	hold_at(SYS_futex, HOLD_ADVICE_ANY);
	must(pthread_create(&thread, NULL, open_one, &s) == 0);
	must(wait_until(hold_is_on, NULL, 20));
	if (_i)
		usleep(1100000);
	close(fd);
	hold_release();
	pthread_join(thread, NULL);
	ck_assert_ptr_nonnull(s);
	cow_storage_unref(s);
	cow_storage_unref(first);
}
END_TEST

/* A process that opens a name while its last user leaves must get a file that has the name,
 * so that others find what it wrote. */
static void come_and_go(void *arg)
{
	struct cow_storage *s, *same;

	(void)arg;
	for (int i = 0; i < 300; i++) {
		ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED, &s));
		ok(cow_storage_open(shm, 5000,
		                    SHM | COW_FILE_COUNTED | COW_FILE_NO_CREATE,
		                    &same));
		__atomic_store_n(mut(s) + 4096, 1, __ATOMIC_SEQ_CST);
		ck_assert_uint_eq(__atomic_load_n(data(same) + 4096,
		                                  __ATOMIC_SEQ_CST), 1);
		cow_storage_unref(same);
		cow_storage_unref(s);
	}
}

START_TEST(opening_races_with_closing)
{
	pid_t children[3];

	for (int i = 0; i < 3; i++)
		children[i] = child_start(come_and_go, NULL);
	for (int i = 0; i < 3; i++)
		child_finish(children[i]);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("file");
	TCase *on = add_case(suite, "storages on files");

	tcase_add_checked_fixture(on, enter, leave);
	tcase_add_test(on, two_processes_share_a_name);
	tcase_add_test(on, libc_finds_it_by_the_same_name);
	tcase_add_test(on, exclusive_and_no_create);
	tcase_add_test(on, unlinked_at_once_with_a_descriptor);
	tcase_add_test(on, names_that_are_none);
	tcase_add_test(on, nothing_opens_nothing);
	tcase_add_test(on, private_and_shared_files);
	tcase_add_test(on, descriptors_that_do_not_fit);
	if (!UNDER_TSAN) /* which has all the addresses */
		tcase_add_test(on, a_full_shm_leaves_nothing);
	tcase_add_test(on, beyond_the_size_limit);
	tcase_add_test(on, the_last_one_removes_the_name);
	tcase_add_loop_test(on, a_name_that_was_there_stays_after_a_failure, 0, 2);
	tcase_add_test(on, a_child_counts);
	tcase_add_test(on, opened_before_the_last_one_went);
	tcase_add_loop_test(on, the_last_one_takes_its_time, 0, 2);
	tcase_add_test(on, opening_races_with_closing);
	return run_suite(suite);
}
