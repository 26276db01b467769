/* SPDX-License-Identifier: MIT */
/*
 * Load and save
 *
 * Each in four ways: by default (with rings if the kernel has them), by plain calls, past
 * the page cache, and past it by plain calls.
 */
#include "tests/support/hold.h"

#include "tests/support/folder.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { BIG = 9 << 20 };

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
	const size_t cut = 4 * MIB + 3 * 4096;
	struct cow_storage *s;
	uint64_t done = 0;

	make_file(to, 100, 1);
	make_file(path, BIG, 2);
	ok(cow_storage_open(path, BIG, COW_FILE_SHARED, &s));
	must(truncate(path, cut) == 0); /* in the middle of a piece */
	fails(-EFAULT, cow_storage_save(s, to, 0, ways[_i] | COW_SAVE_ATOMIC,
	                                &done));
	ck_assert_uint_eq(done, 0);
	ck_file(to, 0, 100, 1);
	ck_assert_int_eq(entries(folder, ".cowshed"), 0);
	fails(-EFAULT, cow_storage_save(s, to, 0, ways[_i], &done));
	ck_assert_uint_le(done, cut);
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

/* A clone shows nothing of a sibling that is written all the time. */
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

static int rings(void)
{
	char target[64];
	int n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		char path[32];
		ssize_t r;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		r = readlink(path, target, sizeof(target) - 1);
		if (r > 0) {
			target[r] = '\0';
			n += strstr(target, "io_uring") != NULL;
		}
	}
	return n;
}

static void child_has_the_moment(void *arg)
{
	ck_pattern(data(arg), 40 * MIB, 8);
	fill(mut(arg), 40 * MIB, 9);
	/* A process that does I/O must not be forked slowly for ever. */
	ck_assert_int_eq(rings(), 0);
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

static void child_has_no_ring(void *arg)
{
	ck_pattern(data(arg), BIG, 8);
	ck_assert_int_eq(rings(), 0);
}

static void *load_once(void *arg)
{
	struct cow_storage **ret = arg;

	ok(cow_storage_load(in_folder("file"), 0, COW_TO_END, 0, ret));
	return NULL;
}

/* The thread that loads is about to call its ring when the fork comes. */
START_TEST(a_fork_in_the_middle_of_a_load)
{
	struct cow_storage *s = new_filled(BIG, 0, 8), *t = NULL;
	pthread_t thread;

	ok(cow_storage_save(s, in_folder("file"), 0, 0, NULL));
	hold_at(SYS_io_uring_enter, HOLD_ADVICE_ANY);
	must(pthread_create(&thread, NULL, load_once, &t) == 0);
	must(wait_until(hold_is_on, NULL, 20));
	ck_assert_int_eq(rings(), 1);
	in_child(child_has_no_ring, s);
	hold_release();
	pthread_join(thread, NULL);
	ck_assert_int_eq(rings(), 0);
	ck_pattern(data(t), BIG, 8);
	cow_storage_unref(t);
	cow_storage_unref(s);
}
END_TEST

/* The writer goes over all of it again and again, so at any moment the bytes are of
 * one round up to some place, and of the round before from there on. */
static void ck_one_moment(const uint64_t *p, size_t n)
{
	size_t i = 0;

	while (i < n && p[i] == p[0])
		i++;
	while (i < n && p[i] == p[0] - 1)
		i++;
	ck_assert_msg(i == n, "word %zu is of another moment", i);
}

/* In this order, unlike memset. */
static void *write_in_order(void *arg)
{
	struct writer *w = arg;
	uint64_t *p = (uint64_t *)w->at;

	for (uint64_t round = 1; !__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE); round++)
		for (size_t i = 0; i < 40 * MIB / 8; i++)
			__atomic_store_n(&p[i], round, __ATOMIC_RELEASE);
	return NULL;
}

/* Can transparent storages be cloned by page here? Such a clone is of one moment. */
static bool pages_can_be_cloned(void)
{
	struct cow_storage *s = new_storage(40 * MIB, 0), *t;
	uint64_t before = stats_now().clones_paged;

	memset(expose(s), 0, 40 * MIB);
	t = lazy(s);
	cow_storage_unref(t);
	cow_storage_unref(s);
	return stats_now().clones_paged > before;
}

START_TEST(a_transparent_storage_is_saved_as_it_was_at_one_moment)
{
	struct writer w = { .storage = new_storage(40 * MIB, 0) };
	bool one_moment = pages_can_be_cloned();
	struct cow_storage *t;
	pthread_t thread;

	w.at = expose(w.storage);
	memset(w.at, 0, 40 * MIB);
	must(pthread_create(&thread, NULL, write_in_order, &w) == 0);
	ok(cow_storage_save(w.storage, in_folder("file"), 0, ways[_i], NULL));
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ok(cow_storage_load(in_folder("file"), 0, COW_TO_END, 0, &t));
	if (one_moment)
		ck_one_moment(cow_storage_data(t), 40 * MIB / 8);
	cow_storage_unref(t);
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
	uint64_t done[3] = { 77, 77, 77 };

	fails(-EINVAL, cow_storage_load(NULL, 0, 1, 0, &t));
	fails(-EINVAL, cow_storage_load("x", 0, 1, COW_SAVE_SYNC, &t));
	fails(-ENOENT, cow_storage_load("/no/such", 0, 1, 0, &t));
	fails(-EINVAL, cow_storage_load_fd(0, 0, 1, COW_IO_DIRECT, &t));
	fails(-EBADF, cow_storage_load_fd(-1, 0, 1, 0, &t));
	fails(-EINVAL, cow_storage_save(NULL, "x", 0, 0, &done[0]));
	fails(-EINVAL, cow_storage_save(s, NULL, 0, 0, NULL));
	fails(-EINVAL, cow_storage_save(s, "x", 1, COW_SAVE_ATOMIC, &done[1]));
	fails(-EINVAL, cow_storage_save_fd(s, 1, 0, COW_SAVE_ATOMIC, &done[2]));
	must(done[0] + done[1] + done[2] == 0);
	fails(-EBADF, cow_storage_save_fd(s, -1, 0, 0, NULL));
	ck_assert_ptr_eq(t, (void *)1);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("io");
	TCase *io = add_case(suite, "load and save");

	tcase_add_checked_fixture(io, enter, leave);
	tcase_add_loop_test(io, what_was_saved_is_loaded, 0, 4 * 9);
	tcase_add_loop_test(io, at_an_offset, 0, 8);
	tcase_add_test(io, atomic_keeps_permissions_and_old_links);
	tcase_add_loop_test(io, through_a_pipe, 0, 2);
	tcase_add_test(io, where_the_file_stands);
	tcase_add_loop_test(io, a_full_disk, 0, 4);
	tcase_add_loop_test(io, saving_what_was_truncated, 0, 4);
	tcase_add_test(io, a_clone_is_saved_while_its_sibling_is_written);
	tcase_add_test(io, forks_while_saving_and_loading);
	tcase_add_test(io, a_fork_in_the_middle_of_a_load);
	tcase_add_loop_test(io,
	                    a_transparent_storage_is_saved_as_it_was_at_one_moment,
	                    0, 4);
	tcase_add_loop_test(io, signals_do_not_interrupt, 0, 4);
	tcase_add_test(io, where_rings_are_denied);
	tcase_add_test(io, wrong_arguments);
	return run_suite(suite);
}
