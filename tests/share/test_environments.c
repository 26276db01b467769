/* SPDX-License-Identifier: MIT */
/*
 * Programs in small limits, that use the library without the shim
 *
 * Each row is a child that limits itself and goes on. What it may have it gets, what it may
 * not have is an error that says so, and nothing takes memory without bound.
 */
#include "tests/support/ends.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void limit(int resource, size_t bytes)
{
	const struct rlimit l = { bytes, bytes };

	must(setrlimit((__rlimit_resource_t)resource, &l) == 0);
}

static bool maps(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p != MAP_FAILED && munmap(p, bytes) == 0;
}

/* ---- A limit on addresses, set when the library has its window ------------------------ */

#define AT_MOST GIB

static void has_its_bytes(void *arg)
{
	struct cow_storage *s = arg;

	ck_pattern(data(s), cow_storage_bytes(s), 1);
	fill(mut(s), cow_storage_bytes(s), 2);
	ck_pattern(data(s), cow_storage_bytes(s), 2);
}

static void forks_in_it(void *arg)
{
	struct cow_storage *s = new_filled(MIB, arg ? COW_STORAGE_TRANSPARENT : 0, 1), *b;

	limit(RLIMIT_AS, AT_MOST);
	for (int i = 0; i < 3; i++)
		in_child(has_its_bytes, s);
	ck_pattern(data(s), MIB, 1);
	must(maps(64 * MIB));
	b = lazy(s);
	fill(mut(b), MIB, 3);
	ck_pattern(data(s), MIB, 1);
	in_child(has_its_bytes, s);
	cow_storage_unref(s);
	cow_storage_unref(b);
}

START_TEST(children_keep_their_memory)
{
	in_child(forks_in_it, _i ? (void *)1 : NULL);
}
END_TEST

static void allocates_in_it(void *arg)
{
	struct cow_storage *s = new_filled(MIB, 0, 1), *more, *none = NULL;

	(void)arg;
	limit(RLIMIT_AS, AT_MOST);
	more = new_filled(20 * MIB, 0, 2);
	ck_pattern(data(more), 20 * MIB, 2);
	must(maps(64 * MIB));
	fails(-ENOMEM, cow_storage_new(4 * GIB, NULL, &none));
	ck_assert_ptr_null(none);
	ck_pattern(data(s), MIB, 1);
	cow_storage_unref(more);
	cow_storage_unref(s);
}

START_TEST(allocates_under_a_limit)
{
	in_child(allocates_in_it, NULL);
}
END_TEST

static void gives_the_window_back(void *arg)
{
	struct cow_storage *s = new_filled(MIB, 0, 1), *more, *none;
	size_t keep = arg ? 100 * MIB : 0;

	ok(cow_window_shrink(keep));
	ok(cow_window_shrink(keep));
	limit(RLIMIT_AS, AT_MOST);
	must(maps(64 * MIB));
	in_child(has_its_bytes, s);
	if (keep) {
		more = new_filled(40 * MIB, 0, 3);
		ck_pattern(data(more), 40 * MIB, 3);
		cow_storage_unref(more);
	} else {
		fails(-ENOMEM, cow_storage_new(40 * MIB, NULL, &none));
	}
	ck_pattern(data(s), MIB, 1);
	cow_storage_unref(s);
}

START_TEST(the_window_is_given_back)
{
	in_child(gives_the_window_back, _i ? (void *)1 : NULL);
}
END_TEST

/* ---- mlockall(MCL_FUTURE): the kernel fills each new mapping ------------------------- */

#define PACK_MOST (2 * GIB) /* packs have less addresses then, should they be filled */
#define MOST (100 * MIB)

static void locks(void)
{
	must(mlockall(MCL_FUTURE) == 0);
}

static bool may_lock(void)
{
	bool may = mlockall(MCL_FUTURE) == 0;

	munlockall();
	return may && maps(8 * GIB);
}

static void little_since(uint64_t before)
{
	uint64_t now = memory_held();

	if (now > before + MOST)
		ck_abort_msg("%llu MiB were made", (unsigned long long)((now - before) / MIB));
}

static void in_a_group(void *arg)
{
	enum cow_share_mode mode = arg ? COW_SHARE_ALIAS : COW_SHARE_CLONE;
	struct cow_storage *s;
	struct cow_group *g;
	uint64_t before = memory_held();

	limit(RLIMIT_FSIZE, PACK_MOST);
	locks();
	ok(cow_group_new(&g));
	ok(cow_group_storage_new(g, 8192, mode, &s));
	fill(mut(s), 8192, 1);
	little_since(before);
	in_child(has_its_bytes, s);
	little_since(before);
	ck_pattern(data(s), 8192, mode == COW_SHARE_ALIAS ? 2 : 1);
	cow_storage_unref(s);
	cow_group_unref(g);
}

START_TEST(locked_group)
{
	if (may_lock())
		in_child(in_a_group, _i ? (void *)1 : NULL);
}
END_TEST

static void receives_locked(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	uint64_t before = memory_held();
	struct cow_storage *s;

	locks();
	s = receive_one(c);
	ck_pattern(data(s), t->bytes, 1);
	/* The views of the bytes that came are not copies of them. */
	mut_range(s, 0, 1, COW_WRITE_BY_PAGE)[0] ^= 1;
	little_since(before + t->bytes); /* the sender's file */
	cow_storage_unref(s);
	cow_channel_free(c);
}

/* _i & 1: in a group; _i & 2: sealed. */
START_TEST(locked_receiver)
{
	struct story t = { .bytes = _i & 2 ? 200 * MIB : 8192 };
	struct rlimit was, less = { PACK_MOST, RLIM_INFINITY };
	struct cow_storage *s;
	pid_t child;

	if (!may_lock())
		return;
	getrlimit(RLIMIT_FSIZE, &was);
	less.rlim_max = was.rlim_max;
	must(setrlimit(RLIMIT_FSIZE, &less) == 0);
	ends_make(&t.ends, SOCK_STREAM, _i & 1);
	s = new_filled(t.bytes, 0, 1);
	child = child_start(receives_locked, &t);
	send_one(t.ends.mine, s, _i & 2 ? COW_SHARE_SEALED : COW_SHARE_CLONE);
	child_finish(child);
	cow_storage_unref(s);
	ends_free(&t.ends);
	must(setrlimit(RLIMIT_FSIZE, &was) == 0);
}
END_TEST

/* A user with a limit on locked memory: the kernel refuses mappings by EAGAIN then. */
static void as_other_user(void *arg)
{
	struct cow_storage *s = new_filled(20 * MIB, 0, 1);
	struct cow_parcel p = cow_parcel_of(s, COW_SHARE_CLONE);
	struct ends *e = arg;

	limit(RLIMIT_MEMLOCK, 8 * MIB);
	must(geteuid() || setuid(12345) == 0);
	if (mlockall(MCL_FUTURE) == 0)
		fails(-ENOMEM, (int)cow_channel_send(e->mine, &p, 1, NULL, 0));
	ck_pattern(data(s), 20 * MIB, 1);
}

static void as_other_user_here(void *arg)
{
	struct ends e;

	(void)arg;
	ends_make(&e, SOCK_STREAM | SOCK_NONBLOCK, false);
	as_other_user(&e);
}

START_TEST(little_locked_memory)
{
	in_child(as_other_user_here, NULL);
}
END_TEST

/* ---- No large files, and filters ------------------------------------------------------- */

/* Memory comes from elsewhere, and what needs a memfd says what is wrong. */
static void without_memfds(int error)
{
	struct cow_storage *s = new_filled(5 * MIB, 0, 1), *b = lazy(s), *t;
	struct cow_parcel p = cow_parcel_of(s, COW_SHARE_CLONE);
	struct cow_group *g;
	uint64_t offset;
	struct ends e;
	int fd;

	ends_make(&e, SOCK_STREAM, false);
	fill(mut(b), 5 * MIB, 2);
	ck_pattern(data(s), 5 * MIB, 1);
	in_child(has_its_bytes, s);
	fails(error, (int)cow_channel_send(e.mine, &p, 1, NULL, 0));
	ck_assert_ptr_null(strstr(cow_last_error(), ": error "));
	fails(error, cow_storage_export(s, COW_SHARE_SEALED, &fd, &offset));
	if (error != -EFBIG)
		fails(error, cow_group_new(&g));
	ck_pattern(data(s), 5 * MIB, 1);
	t = new_storage(5 * MIB, COW_STORAGE_SHAREABLE);
	fill(mut(t), 5 * MIB, 4);
	ck_assert_uint_eq(info_of(t).shared, COW_SHARED_NOT);
	cow_storage_unref(t);
	cow_storage_unref(s);
	cow_storage_unref(b);
	ends_free(&e);
}

static void small_files(void *arg)
{
	(void)arg;
	limit(RLIMIT_FSIZE, MIB);
	without_memfds(-EFBIG);
}

static void filtered(void *arg)
{
	uint32_t error = (uint32_t)*(int *)arg;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { .len = COUNT(filter), .filter = filter };

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	without_memfds(-*(int *)arg);
}

START_TEST(no_large_files)
{
	in_child(small_files, NULL);
}
END_TEST

START_TEST(filters_of_calls)
{
	static int errors[] = { EPERM, EACCES, ENOSYS };

	in_child(filtered, &errors[_i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("environments");
	TCase *all = add_case(suite, "environments");
	TCase *first = add_bare_case(suite, "from the start");

	if (!SANITIZED) { /* their shadow has terabytes */
		tcase_add_loop_test(all, children_keep_their_memory, 0, 2);
		tcase_add_test(all, allocates_under_a_limit);
		tcase_add_loop_test(all, the_window_is_given_back, 0, 2);
		tcase_add_loop_test(all, locked_group, 0, 2);
		tcase_add_loop_test(all, locked_receiver, 0, 4);
		tcase_add_test(all, little_locked_memory);
	}
	tcase_add_test(first, no_large_files);
	tcase_add_loop_test(first, filters_of_calls, 0, 3);
	return run_suite(suite);
}
