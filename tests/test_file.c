/* SPDX-License-Identifier: MIT */
/*
 * Storages on files and shared memory, load and save
 *
 * Names and files of a test are its own: they have the process's number in them.
 * What a test leaves in /dev/shm or in its folder is looked for at its end.
 */
#include "tests/support/support.h"

#include <cowshed-file.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHM (COW_FILE_SHM | COW_FILE_SHARED)
enum { BIG = 9 << 20 };

static char folder[64], shm[64];

static const char *in_folder(const char *name)
{
	static char paths[4][128];
	static int n;
	char *p = paths[n++ % 4];

	snprintf(p, sizeof(paths[0]), "%s/%s", folder, name);
	return p;
}

static int entries(const char *path, const char *with)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir)) != NULL)
		n += e->d_name[0] != '.' ? strstr(e->d_name, with) != NULL
		                         : strstr(e->d_name, "cowshed") != NULL;
	closedir(dir);
	return n;
}

static void enter(void)
{
	snprintf(folder, sizeof(folder), "/tmp/cowshed-test-%d", getpid());
	snprintf(shm, sizeof(shm), "/cowshed-test-%d", getpid());
	must(mkdir(folder, 0700) == 0);
}

static void leave(void)
{
	DIR *dir = opendir(folder);
	struct dirent *e;

	while ((e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			must(unlinkat(dirfd(dir), e->d_name, 0) == 0);
	closedir(dir);
	must(rmdir(folder) == 0);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
}

static size_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (size_t)st.st_size : SIZE_MAX;
}

static void ck_file(const char *path, size_t from, size_t bytes, uint64_t seed)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char *p = malloc(bytes + 1);

	must(fd >= 0 && p != NULL);
	ck_assert_int_eq(pread(fd, p, bytes, (off_t)from), (ssize_t)bytes);
	ck_pattern(p, bytes, seed);
	free(p);
	close(fd);
}

static void make_file(const char *path, size_t bytes, uint64_t seed)
{
	struct cow_storage *s = new_filled(bytes, 0, seed);

	ok(cow_storage_save(s, path, 0, COW_IO_PLAIN, NULL));
	cow_storage_unref(s);
}

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

	fails(-ENOSPC, cow_storage_open(shm, (size_t)1 << 45, SHM, &s));
	must(strstr(cow_last_error(), shm) != NULL);
	must(strstr(cow_last_error(), "allocating shared memory") != NULL);
	must(strstr(cow_last_error(), "no space") != NULL);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	fails(-ENOSPC, cow_storage_open(shm, (size_t)1 << 45,
	                                SHM | COW_FILE_COUNTED, &s));
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	/* One that is there keeps its size. */
	ok(cow_storage_open(shm, 5000, SHM, &small));
	fails(-ENOSPC, cow_storage_open(shm, (size_t)1 << 45, SHM, &s));
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

static void hold_counted(void *arg)
{
	struct cow_storage *s;
	struct gate *g = arg;

	ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED, &s));
	gate_open(&g[0]);
	gate_wait(&g[1]);
	cow_storage_unref(s);
}

START_TEST(the_killed_do_not_count)
{
	struct gate g[2];
	pid_t child;

	gate_make(&g[0]);
	gate_make(&g[1]);
	child = child_start(hold_counted, g);
	gate_wait(&g[0]);
	in_child(use_counted, NULL); /* not the last */
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	kill(child, SIGKILL);
	(void)child_status(child);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	in_child(use_counted, NULL);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	gate_free(&g[0]);
	gate_free(&g[1]);
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

/* Who opens while the last one goes must end with a file that has the name: then
 * what it wrote is what others find. */
static void come_and_go(void *arg)
{
	struct cow_storage *s, *same;

	(void)arg;
	for (int i = 0; i < 300; i++) {
		unsigned char mark;

		ok(cow_storage_open(shm, 5000, SHM | COW_FILE_COUNTED, &s));
		mark = (unsigned char)__atomic_add_fetch(mut(s), 1,
		                                         __ATOMIC_SEQ_CST);
		(void)mark;
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

/* ---- Load and save ---------------------------------------------------------------- */

static const uint32_t ways[] = { 0, COW_IO_PLAIN, COW_IO_DIRECT,
	                         COW_IO_DIRECT | COW_IO_PLAIN };
static const size_t sizes[] = { 0, 1, 511, 4096, 5000, MIB, 2 * MIB, BIG + 13,
	                        70 * MIB + 5 };

START_TEST(what_was_saved_is_loaded)
{
	const uint32_t way = ways[_i % 4];
	const char *path = in_folder("file");
	size_t bytes = sizes[_i / 4];
	struct cow_storage *s = new_filled(bytes, 0, 5), *t;
	uint64_t done = 9;

	ok(cow_storage_save(s, path, 0, way | COW_SAVE_SYNC, &done));
	ck_assert_uint_eq(done, bytes);
	ck_assert_uint_eq(size_of(path), bytes);
	ok(cow_storage_load(path, 0, COW_TO_END, way, &t));
	ck_assert_uint_eq(cow_storage_bytes(t), bytes);
	ck_pattern(data(t), bytes, 5);
	if (bytes) {
		fill(mut(t), bytes, 6);
		ok(cow_storage_save(t, path, 0, way | COW_SAVE_ATOMIC, &done));
		ck_assert_uint_eq(done, bytes);
		ck_file(path, 0, bytes, 6);
		cow_storage_unref(t);
		fails(-ENODATA, cow_storage_load(path, 1, bytes, way, &t));
		ok(cow_storage_load(path, bytes - 1, 1, way, &t));
	}
	ck_assert_int_eq(entries(folder, ".cowshed"), 0);
	cow_storage_unref(t);
	cow_storage_unref(s);
}
END_TEST

START_TEST(at_an_offset)
{
	const char *path = in_folder("file");
	struct cow_storage *s = new_filled(BIG, 0, 2), *t;
	uint64_t off = _i & 1 ? 8192 : 777;

	make_file(path, 3 * BIG, 1);
	ok(cow_storage_save(s, path, off, ways[_i / 2], NULL));
	ck_assert_uint_eq(size_of(path), 3 * BIG);
	ck_file(path, off, BIG, 2);
	ck_file(path, 0, off, 1);
	ok(cow_storage_load(path, off, BIG, ways[_i / 2], &t));
	ck_pattern(data(t), BIG, 2);
	cow_storage_unref(t);
	ok(cow_storage_save(s, path, off, ways[_i / 2] | COW_SAVE_TRUNCATE, NULL));
	ck_assert_uint_eq(size_of(path), off + BIG);
	cow_storage_unref(s);
}
END_TEST

START_TEST(atomic_keeps_permissions_and_old_links)
{
	const char *path = in_folder("file"), *link_to = in_folder("link");
	struct cow_storage *s = new_filled(5000, 0, 2);
	struct stat st;

	make_file(path, 9000, 1);
	must(chmod(path, 0640) == 0 && link(path, link_to) == 0);
	ok(cow_storage_save(s, path, 0, COW_SAVE_ATOMIC | COW_SAVE_SYNC, NULL));
	must(stat(path, &st) == 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0640);
	ck_assert_uint_eq(size_of(path), 5000);
	ck_file(path, 0, 5000, 2);
	ck_file(link_to, 0, 9000, 1);
	cow_storage_unref(s);
}
END_TEST

struct pipe_end {
	int fd;
	size_t bytes;
};

static void *drain(void *arg)
{
	struct pipe_end *e = arg;
	struct cow_storage *s;

	ok(cow_storage_load_fd(e->fd, COW_FROM_HERE, e->bytes, 0, &s));
	return s;
}

START_TEST(through_a_pipe)
{
	struct cow_storage *s = new_filled(BIG, 0, 3), *t;
	struct pipe_end e;
	uint64_t done;
	pthread_t thread;
	void *got;
	int ends[2];

	must(pipe2(ends, _i ? O_NONBLOCK | O_CLOEXEC : O_CLOEXEC) == 0);
	e = (struct pipe_end){ ends[0], BIG };
	must(pthread_create(&thread, NULL, drain, &e) == 0);
	ok(cow_storage_save_fd(s, ends[1], COW_FROM_HERE, 0, &done));
	ck_assert_uint_eq(done, BIG);
	must(pthread_join(thread, &got) == 0);
	ck_pattern(data(got), BIG, 3);
	cow_storage_unref(got);
	fails(-EINVAL, cow_storage_save_fd(s, ends[1], 0, 0, NULL));
	fails(-EINVAL, cow_storage_load_fd(ends[0], COW_FROM_HERE, COW_TO_END, 0,
	                                   &t));
	fails(-EBADF, cow_storage_save_fd(s, ends[0], COW_FROM_HERE, 0, NULL));
	close(ends[1]);
	fails(-ENODATA, cow_storage_load_fd(ends[0], COW_FROM_HERE, 1, 0, &t));
	close(ends[0]);
	cow_storage_unref(s);
}
END_TEST

START_TEST(where_the_file_stands)
{
	const char *path = in_folder("file");
	struct cow_storage *s = new_filled(BIG, 0, 3), *t;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), again;

	ok(cow_storage_save_fd(s, fd, COW_FROM_HERE, 0, NULL));
	ok(cow_storage_save_fd(s, fd, COW_FROM_HERE, COW_IO_PLAIN, NULL));
	ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), 2 * BIG);
	must(lseek(fd, BIG, SEEK_SET) == BIG);
	ok(cow_storage_load_fd(fd, COW_FROM_HERE, COW_TO_END, 0, &t));
	ck_pattern(data(t), BIG, 3);
	ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), 2 * BIG);
	again = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	fails(-EINVAL, cow_storage_save_fd(s, again, 0, 0, NULL));
	ok(cow_storage_save_fd(s, again, COW_FROM_HERE, 0, NULL));
	ck_file(path, 2 * BIG, BIG, 3);
	close(again);
	close(fd);
	cow_storage_unref(t);
	cow_storage_unref(s);
}
END_TEST

START_TEST(a_full_disk)
{
	struct cow_storage *s = new_filled(BIG, 0, 3);
	uint64_t done = 9;

	fails(-ENOSPC, cow_storage_save(s, "/dev/full", 0, ways[_i], &done));
	ck_assert_uint_eq(done, 0);
	must(strstr(cow_last_error(), "/dev/full") != NULL);
	must(strstr(cow_last_error(), "writing") != NULL);
	fails(-ENOENT, cow_storage_save(s, in_folder("no/such"), 0,
	                                ways[_i] | COW_SAVE_ATOMIC, &done));
	fails(-EISDIR, cow_storage_save(s, folder, 0, ways[_i], &done));
	fails(-EISDIR, cow_storage_load(folder, 0, 10, ways[_i], &s));
	cow_storage_unref(s);
}
END_TEST

/* A mapping whose file was cut: an error, no signal. */
START_TEST(saving_what_was_truncated)
{
	const char *path = in_folder("source"), *to = in_folder("file");
	struct cow_storage *s;
	uint64_t done = 0;

	make_file(to, 100, 1);
	make_file(path, BIG, 2);
	ok(cow_storage_open(path, BIG, COW_FILE_SHARED, &s));
	must(truncate(path, 4 << 20) == 0);
	fails(-EFAULT, cow_storage_save(s, to, 0, ways[_i] | COW_SAVE_ATOMIC,
	                                &done));
	ck_assert_uint_eq(done, 0);
	ck_file(to, 0, 100, 1);
	ck_assert_int_eq(entries(folder, ".cowshed"), 0);
	fails(-EFAULT, cow_storage_save(s, to, 0, ways[_i], &done));
	ck_assert_uint_le(done, 4 << 20);
	ck_file(to, 0, done, 2);
	cow_storage_unref(s);
}
END_TEST

/* ---- While others write ------------------------------------------------------------ */

struct writer {
	struct cow_storage *storage;
	unsigned char *at;
	int stop, rounds;
};

static void *keep_writing(void *arg)
{
	struct writer *w = arg;

	do {
		unsigned char *p = w->at ? w->at : mut(w->storage);

		memset(p, ++w->rounds, 40 * MIB);
	} while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE));
	return NULL;
}

/* Of a sibling that is written all the time the clone shows nothing. */
START_TEST(a_clone_is_saved_while_its_sibling_is_written)
{
	const char *path = in_folder("file");
	struct writer w = { .storage = new_filled(40 * MIB, 0, 8) };
	struct cow_storage *clone = lazy(w.storage);
	pthread_t thread;

	must(pthread_create(&thread, NULL, keep_writing, &w) == 0);
	for (int i = 0; i < 4; i++) {
		ok(cow_storage_save(clone, path, 0, ways[i], NULL));
		ck_file(path, 0, 40 * MIB, 8);
	}
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ck_pattern(data(clone), 40 * MIB, 8);
	cow_storage_unref(clone);
	cow_storage_unref(w.storage);
}
END_TEST

static void child_has_the_moment(void *arg)
{
	ck_pattern(data(arg), 40 * MIB, 8);
	fill(mut(arg), 40 * MIB, 9);
	/* No ring of the parent's makes us one that does I/O. */
	ck_assert_int_eq(entries("/proc/self/fd", "no"), 0);
}

static void *keep_saving(void *arg)
{
	struct writer *w = arg;

	do {
		struct cow_storage *t;

		ok(cow_storage_save(w->storage, in_folder("file"), 0, 0, NULL));
		ok(cow_storage_load(in_folder("file"), 0, 40 * MIB, 0, &t));
		ck_pattern(data(t), 40 * MIB, 8);
		cow_storage_unref(t);
		__atomic_fetch_add(&w->rounds, 1, __ATOMIC_RELAXED);
	} while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE));
	return NULL;
}

START_TEST(forks_while_saving_and_loading)
{
	struct writer w = { .storage = new_filled(40 * MIB, 0, 8) };
	pthread_t thread;

	must(pthread_create(&thread, NULL, keep_saving, &w) == 0);
	for (int i = 0; i < 10; i++)
		in_child(child_has_the_moment, w.storage);
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ck_pattern(data(w.storage), 40 * MIB, 8);
	cow_storage_unref(w.storage);
}
END_TEST

static void tick(int sig)
{
	(void)sig;
}

START_TEST(signals_do_not_interrupt)
{
	struct sigaction act = { .sa_handler = tick };
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { { 0, 0 },
		                                                       { 0, 0 } };
	struct cow_storage *s = new_filled(40 * MIB, 0, 8), *t;

	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	ok(cow_storage_save(s, in_folder("file"), 0, ways[_i], NULL));
	ok(cow_storage_load(in_folder("file"), 0, COW_TO_END, ways[_i], &t));
	setitimer(ITIMER_REAL, &never, NULL);
	ck_pattern(data(t), 40 * MIB, 8);
	cow_storage_unref(t);
	cow_storage_unref(s);
}
END_TEST

static void without_rings(void *arg)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		         offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { 4, program };
	struct cow_storage *s = arg, *t;

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	must(syscall(SYS_io_uring_setup, 1, NULL) == -1 && errno == EPERM);
	for (int i = 0; i < 4; i++) {
		ok(cow_storage_save(s, in_folder("file"), 0, ways[i], NULL));
		ok(cow_storage_load(in_folder("file"), 0, COW_TO_END, ways[i],
		                    &t));
		ck_pattern(data(t), BIG, 8);
		cow_storage_unref(t);
	}
}

START_TEST(where_rings_are_denied)
{
	struct cow_storage *s = new_filled(BIG, 0, 8);

	in_child(without_rings, s);
	cow_storage_unref(s);
}
END_TEST

START_TEST(wrong_arguments)
{
	struct cow_storage *s = new_storage(10, 0), *t = (void *)1;

	fails(-EINVAL, cow_storage_load(NULL, 0, 1, 0, &t));
	fails(-EINVAL, cow_storage_load("x", 0, 1, COW_SAVE_SYNC, &t));
	fails(-ENOENT, cow_storage_load("/no/such", 0, 1, 0, &t));
	fails(-EINVAL, cow_storage_load_fd(0, 0, 1, COW_IO_DIRECT, &t));
	fails(-EBADF, cow_storage_load_fd(-1, 0, 1, 0, &t));
	fails(-EINVAL, cow_storage_save(NULL, "x", 0, 0, NULL));
	fails(-EINVAL, cow_storage_save(s, NULL, 0, 0, NULL));
	fails(-EINVAL, cow_storage_save(s, "x", 1, COW_SAVE_ATOMIC, NULL));
	fails(-EINVAL, cow_storage_save_fd(s, 1, 0, COW_SAVE_ATOMIC, NULL));
	fails(-EBADF, cow_storage_save_fd(s, -1, 0, 0, NULL));
	ck_assert_ptr_eq(t, (void *)1);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("file");
	TCase *on = add_case(suite, "storages on files");
	TCase *io = add_case(suite, "load and save");

	tcase_add_checked_fixture(on, enter, leave);
	tcase_add_checked_fixture(io, enter, leave);
	tcase_add_test(on, two_processes_share_a_name);
	tcase_add_test(on, libc_finds_it_by_the_same_name);
	tcase_add_test(on, exclusive_and_no_create);
	tcase_add_test(on, unlinked_at_once_with_a_descriptor);
	tcase_add_test(on, names_that_are_none);
	tcase_add_test(on, nothing_opens_nothing);
	tcase_add_test(on, private_and_shared_files);
	tcase_add_test(on, descriptors_that_do_not_fit);
	tcase_add_test(on, a_full_shm_leaves_nothing);
	tcase_add_test(on, beyond_the_size_limit);
	tcase_add_test(on, the_last_one_removes_the_name);
	tcase_add_test(on, the_killed_do_not_count);
	tcase_add_test(on, a_child_counts);
	tcase_add_test(on, opening_races_with_closing);
	tcase_add_loop_test(io, what_was_saved_is_loaded, 0, 4 * 9);
	tcase_add_loop_test(io, at_an_offset, 0, 8);
	tcase_add_test(io, atomic_keeps_permissions_and_old_links);
	tcase_add_loop_test(io, through_a_pipe, 0, 2);
	tcase_add_test(io, where_the_file_stands);
	tcase_add_loop_test(io, a_full_disk, 0, 4);
	tcase_add_loop_test(io, saving_what_was_truncated, 0, 4);
	tcase_add_test(io, a_clone_is_saved_while_its_sibling_is_written);
	tcase_add_test(io, forks_while_saving_and_loading);
	tcase_add_loop_test(io, signals_do_not_interrupt, 0, 4);
	tcase_add_test(io, where_rings_are_denied);
	tcase_add_test(io, wrong_arguments);
	return run_suite(suite);
}
