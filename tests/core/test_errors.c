/* SPDX-License-Identifier: MIT */
/*
 * Wrong arguments: a code, a sentence, and everything as it was
 *
 * No mistake of a caller may pass silently or corrupt anything. A call that
 * can report one returns -EINVAL and leaves its outputs alone; one that has no
 * way to report it may at most trap, in a child here, and never crash in some
 * other way.
 */
#include "core/base/error.h"
#include "tests/support/support.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

START_TEST(null_arguments)
{
	struct cow_storage *storage = new_filled(1000, 0, 1), *out = NULL;
	struct cow_allocator *cpu = cow_allocator_default(), *found = NULL;
	struct cow_data_ptr ptr;
	struct cow_storage_info info = { .size = sizeof(info) };
	struct cow_stats stats = { .size = sizeof(stats) };
	void *p = NULL;

	fails(-EINVAL, cow_storage_new(1, NULL, NULL));
	fails(-EINVAL, cow_storage_new_external(NULL, 1, NULL, &out));
	fails(-EINVAL, cow_storage_data_mut(NULL, &p));
	fails(-EINVAL, cow_storage_data_mut(storage, NULL));
	fails(-EINVAL, cow_storage_data_mut_range(NULL, 0, 0, COW_WRITE_AUTO,
	                                          &p));
	fails(-EINVAL, cow_storage_data_mut_range(storage, 0, 1,
	                                          COW_WRITE_AUTO, NULL));
	fails(-EINVAL, cow_storage_expose(NULL, &p));
	fails(-EINVAL, cow_storage_lazy_clone(NULL, &out));
	fails(-EINVAL, cow_storage_lazy_clone(storage, NULL));
	fails(-EINVAL, cow_storage_clone(NULL, &out));
	fails(-EINVAL, cow_storage_clone(storage, NULL));
	fails(-EINVAL, cow_storage_resize(NULL, 5));
	fails(-EINVAL, cow_storage_swap_data_ptr(storage, NULL, 5));
	fails(-EINVAL, cow_storage_swap_data_ptr(NULL, &ptr, 5));
	fails(-EINVAL, cow_storage_get_info(NULL, &info));
	fails(-EINVAL, cow_storage_get_info(storage, NULL));
	fails(-EINVAL, cow_storage_from_ptr(&p, NULL, NULL));
	fails(-EINVAL, cow_allocator_get((struct cow_device){ 0, 0 }, NULL));
	fails(-EINVAL, cow_allocator_allocate(NULL, 1, &ptr));
	fails(-EINVAL, cow_allocator_allocate(cpu, 1, NULL));
	fails(-EINVAL, cow_allocator_clone(NULL, &p, 1, &ptr));
	fails(-EINVAL, cow_allocator_clone(cpu, NULL, 1, &ptr));
	fails(-EINVAL, cow_allocator_raw_allocate(NULL, 1, &p));
	fails(-EINVAL, cow_allocator_raw_allocate(cpu, 1, NULL));
	fails(-EINVAL, cow_allocator_raw_deallocate(NULL, &p));
	fails(-EINVAL, cow_block_new(1, 0, 0, NULL));
	fails(-EINVAL, cow_option_set(NULL, "1"));
	fails(-EINVAL, cow_stats_get(NULL));
	fails(-EINVAL, cow_stats_read(1, NULL));
	fails(-ENOENT, cow_storage_from_ptr(NULL, NULL, &out));
	ck_assert_ptr_null(out);
	ck_assert_ptr_null(found);
	ck_assert_ptr_null(p);
	(void)stats;
	ck_assert_uint_eq(state_of(storage), COW_STATE_OWNED);
	ck_pattern(data(storage), 1000, 1);
	cow_storage_unref(storage);
}
END_TEST

START_TEST(impossible_external_memory)
{
	static unsigned char bytes[100];
	const struct cow_device strange[] = { { -1, 0 }, { COW_DEVICE_TYPES, 0 }, { 0, -1 },
		                              { 0, COW_DEVICE_INDEXES } };
	struct cow_data_ptr p = { .data = bytes }, high = { .data = (void *)-PAGE };
	struct cow_storage *s = new_filled(1000, 0, 1), *out = NULL;

	fails(-EINVAL, cow_storage_new_external(&p, SIZE_MAX, NULL, &out));
	fails(-EINVAL, cow_storage_new_external(&p, (size_t)INT64_MAX + 1, NULL, &out));
	fails(-EINVAL, cow_storage_new_external(&high, 2 * PAGE, NULL, &out));
	fails(-EINVAL, cow_storage_swap_data_ptr(s, &p, SIZE_MAX));
	fails(-EINVAL, cow_storage_swap_data_ptr(s, &high, 2 * PAGE));
	for (size_t i = 0; i < COUNT(strange); i++) {
		p.device = strange[i];
		fails(-EINVAL, cow_storage_new_external(&p, 100, NULL, &out));
		fails(-EINVAL, cow_storage_swap_data_ptr(s, &p, 100));
	}
	ck_assert_ptr_null(out);
	ck_assert_ptr_eq(p.data, bytes);
	ck_pattern(data(s), 1000, 1);
	cow_storage_unref(s);
}
END_TEST

START_TEST(half_a_window)
{
	uintptr_t start = 0, end = 0, only = 0;
	unsigned char *p = new_block(100000, 0);

	cow_window(&start, &end);
	must((uintptr_t)p - start < end - start);
	cow_window(NULL, NULL);
	cow_window(&only, NULL);
	ck_assert_uint_eq(only, start);
	cow_window(NULL, &only);
	ck_assert_uint_eq(only, end);
	cow_block_free(p);
}
END_TEST

/* What the kernel may answer, as a sentence and not as a number. */
START_TEST(sentences_for_errors)
{
	static const int errors[] = {
		EPERM, ENOENT, ESRCH, EINTR, EIO, ENXIO, E2BIG, EBADF, EAGAIN, ENOMEM, EACCES,
		EFAULT, EBUSY, EEXIST, EXDEV, ENODEV, EINVAL, ENFILE, EMFILE, EFBIG, ENOSPC,
		EPIPE, EDEADLK, ENOSYS, EBADMSG, EOVERFLOW, EMSGSIZE, EOPNOTSUPP, ENOBUFS,
		ENOTCONN, ETOOMANYREFS, ETIMEDOUT, ECONNREFUSED, ECONNRESET, EUSERS, ESTALE,
		EDQUOT,
	};

	for (size_t i = 0; i < COUNT(errors); i++) {
		ck_assert_int_eq(cow__error_from(-errors[i], "what"), -errors[i]);
		if (strstr(cow_last_error(), "error ") && errors[i] != EIO)
			ck_abort_msg("%d: %s", errors[i], cow_last_error());
	}
}
END_TEST

/* These return no code. */
static void bytes_of_null(void *arg)
{
	(void)arg;
	(void)cow_storage_bytes(NULL);
}

static void data_of_null(void *arg)
{
	(void)arg;
	(void)cow_storage_data(NULL);
}

static void device_of_null(void *arg)
{
	(void)arg;
	(void)cow_storage_device(NULL);
}

static void count_of_null(void *arg)
{
	(void)arg;
	(void)refs_of(NULL);
}

static void ref_of_null(void *arg)
{
	(void)arg;
	(void)cow_storage_ref(NULL);
}

static void unref_of_null(void *arg)
{
	(void)arg;
	(void)cow_storage_unref(NULL);
}

static void bytes_of_no_block(void *arg)
{
	(void)arg;
	(void)cow_block_bytes(NULL);
}

static void resize_of_no_block(void *arg)
{
	void *p;

	(void)arg;
	(void)cow_block_resize(NULL, 5, &p);
}

static void clear_of_null(void *arg)
{
	(void)arg;
	cow_data_ptr_clear(NULL);
}

static void name_of_no_fallback(void *arg)
{
	(void)arg;
	(void)cow_fallback_name((enum cow_fallback)1000);
	(void)cow_fallback_name((enum cow_fallback)-1);
}

static void probe_of_no_feature(void *arg)
{
	const char *name, *why;

	(void)arg;
	(void)cow_feature_probe((enum cow_feature)1000, &name, &why);
	(void)cow_feature_probe((enum cow_feature)-1, &name, &why);
}

static void unref_too_often(void *arg)
{
	struct cow_storage *storage = new_storage(1000, 0);
	int i;

	(void)arg;
	for (i = 0; i < 3; i++)
		cow_storage_unref(storage);
}

static child_fn *const mistakes[] = {
	bytes_of_null,     data_of_null,       device_of_null, count_of_null,
	ref_of_null,       unref_of_null,      bytes_of_no_block,
	clear_of_null,     resize_of_no_block, name_of_no_fallback,
	probe_of_no_feature, unref_too_often,
};
enum { MISTAKES = COUNT(mistakes) };

START_TEST(mistakes_without_a_code)
{
	in_child_survives(mistakes[_i], NULL);
}
END_TEST

/* Each failure leaves the storage as it was: the same state, address, bytes. */
START_TEST(failures_change_nothing)
{
	struct cow_storage *a = new_filled(MIB, 0, 2), *b = lazy(a);
	struct cow_storage *t = new_filled(MIB, COW_STORAGE_TRANSPARENT, 3);
	const void *where = data(a), *there = data(t);
	void *p = &p;
	int i;

	cow_storage_ref(t);
	for (i = 0; i < 100; i++) {
		fails(-EINVAL, cow_storage_data_mut_range(a, MIB, 1,
		                                          COW_WRITE_AUTO, &p));
		refuses(cow_storage_resize(b, SIZE_MAX - (size_t)i));
		refuses(cow_storage_resize(b, (size_t)1 << 50));
		fails(-EBUSY, cow_storage_resize(t, 2 * MIB));
	}
	ck_assert_ptr_eq(p, &p);
	ck_assert_ptr_eq(data(a), where);
	ck_assert_ptr_eq(data(b), where);
	ck_assert_ptr_eq(data(t), there);
	ck_assert_uint_eq(state_of(a), COW_STATE_LAZY);
	ck_assert_uint_eq(info_of(b).sharers, 2);
	ck_assert_uint_eq(refs_of(t), 2);
	ck_pattern(data(b), MIB, 2);
	ck_pattern(data(t), MIB, 3);
	fill(mut(b), MIB, 4);
	ck_pattern(data(a), MIB, 2);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(t);
	cow_storage_unref(t);
}
END_TEST

/* ---- Sentences ----------------------------------------------------------- */

static void *fail_elsewhere(void *arg)
{
	struct cow_allocator *found;

	ck_assert_str_eq(cow_last_error(), "");
	fails(-ENODEV, cow_allocator_get(
	                       (struct cow_device){ COW_DEVICE_PRIVATE, 0 }, &found));
	strncpy(arg, cow_last_error(), 199);
	return NULL;
}

START_TEST(sentences_are_each_threads_own)
{
	struct cow_storage *storage = NULL;
	char theirs[200] = "", mine[200] = "";
	pthread_t thread;

	fails(-EINVAL, cow_storage_new(SIZE_MAX, NULL, &storage));
	strncpy(mine, cow_last_error(), 199);
	ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, theirs),
	                 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_str_eq(cow_last_error(), mine);
	ck_assert_str_ne(theirs, "");
	ck_assert_str_ne(theirs, mine);
}
END_TEST

/* A success does not take the sentence away, the next failure does. */
START_TEST(sentences_stay_until_the_next_failure)
{
	struct cow_storage *storage = NULL;
	struct cow_allocator *found;
	char first[200] = "";

	fails(-EINVAL, cow_storage_new(SIZE_MAX, NULL, &storage));
	strncpy(first, cow_last_error(), 199);
	storage = new_storage(100, 0);
	ck_assert_str_eq(cow_last_error(), first);
	fails(-ENODEV, cow_allocator_get(
	                       (struct cow_device){ COW_DEVICE_CUDA, 0 }, &found));
	ck_assert_str_ne(cow_last_error(), first);
	cow_storage_unref(storage);
}
END_TEST

START_TEST(options_by_name)
{
	fails(-ENOENT, cow_option_set("no-such-key", "1"));
	fails(-EINVAL, cow_option_set("backing", "straw"));
	fails(-EINVAL, cow_option_set("backing", NULL));
	ok(cow_option_set("backing", "auto"));
	fails(-ENOENT, cow_option_set("", ""));
}
END_TEST

/* ---- What a process has before it did anything --------------------------- */

START_TEST(before_anything)
{
	struct cow_stats stats = { .size = sizeof(stats) };
	struct cow_storage *none = NULL;
	uintptr_t start = 1, end = 1;

	ck_assert_str_eq(cow_version(), "0.1.0");
	ck_assert_str_eq(cow_last_error(), "");
	cow_window(&start, &end);
	ck_assert_uint_eq(start, 0);
	ck_assert_uint_eq(end, 0);
	fails(-ENOENT, cow_storage_from_ptr(&stats, NULL, &none));
	ok(cow_stats_get(&stats));
	ck_assert_uint_eq(stats.bytes_live, 0);
	ck_assert_int_eq(cow_trim(), 0);
	ck_assert_ptr_null(cow_storage_unref(NULL));
	cow_block_free(NULL);
}
END_TEST

START_TEST(the_window_stays)
{
	uintptr_t start, end, start_again, end_again;
	struct cow_storage *storage = new_storage(100 * MIB, 0);

	cow_window(&start, &end);
	ck_assert_uint_lt(start, end);
	ck_assert_uint_ge((uintptr_t)data(storage), start);
	ck_assert_uint_lt((uintptr_t)data(storage), end);
	cow_storage_unref(storage);
	cow_storage_unref(new_storage(20 * GIB, 0));
	cow_trim();
	cow_window(&start_again, &end_again);
	ck_assert_uint_eq(start, start_again);
	ck_assert_uint_eq(end, end_again);
}
END_TEST

/* The first thing that a process does with the library is to free wrongly. */
static void free_first(void *arg)
{
	cow_block_free(arg);
}

START_TEST(free_before_anything)
{
	char bytes[100];

	in_child_traps(free_first, bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("errors");
	TCase *tcase = add_case(suite, "errors");
	TCase *bare = add_bare_case(suite, "first");

	tcase_add_test(tcase, null_arguments);
	tcase_add_test(tcase, impossible_external_memory);
	tcase_add_test(tcase, half_a_window);
	tcase_add_test(tcase, sentences_for_errors);
	tcase_add_loop_test(tcase, mistakes_without_a_code, 0, MISTAKES);
	tcase_add_test(tcase, failures_change_nothing);
	tcase_add_test(tcase, sentences_are_each_threads_own);
	tcase_add_test(tcase, sentences_stay_until_the_next_failure);
	tcase_add_test(tcase, options_by_name);
	tcase_add_test(bare, before_anything);
	tcase_add_test(bare, the_window_stays);
	tcase_add_test(bare, free_before_anything);
	return run_suite(suite);
}
