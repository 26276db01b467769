// SPDX-License-Identifier: MIT
/*
 * Elements that are not plain bytes: a storage of std::string
 *
 * A string may point into itself, so its bytes must not be copied, moved, or
 * seen by two storages. Such a storage carries hooks: clones go through `copy`
 * at once, the end goes through `destroy`, and whatever would treat the
 * elements as bytes is refused. Instances are counted, so that nothing is
 * destroyed twice or not at all. This file is C++ because the header promises
 * to be usable from it.
 */
#include "tests/support/support.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>

namespace
{

long living;

struct text {
	std::string value;
	text() : value("born")
	{
		living++;
	}
	text(const text &other) : value(other.value)
	{
		living++;
	}
	~text()
	{
		living--;
	}
};

struct hooks {
	cow_element_hooks base;
	int fail_copy, fail_construct;
};

int copy_texts(void *user, void *dst, const void *src, size_t count)
{
	const hooks *h = static_cast<hooks *>(user);

	if (h->fail_copy != 0)
		return h->fail_copy;
	std::uninitialized_copy_n(static_cast<const text *>(src), count,
	                          static_cast<text *>(dst));
	return 0;
}

void destroy_texts(void *, void *data, size_t count)
{
	std::destroy_n(static_cast<text *>(data), count);
}

int construct_texts(void *user, void *data, size_t count)
{
	const hooks *h = static_cast<hooks *>(user);

	if (h->fail_construct != 0)
		return h->fail_construct;
	for (size_t i = 0; i < count; i++)
		new (static_cast<text *>(data) + i) text;
	return 0;
}

hooks texts()
{
	hooks h = {};

	h.base.size = sizeof(h.base);
	h.base.element_bytes = sizeof(text);
	h.base.copy = copy_texts;
	h.base.destroy = destroy_texts;
	h.base.construct = construct_texts;
	return h;
}

cow_storage_options options_for(const hooks &h)
{
	cow_storage_options options = {};

	options.size = sizeof(options);
	options.elements = &h.base;
	return options;
}

cow_storage *new_texts(hooks &h, size_t count)
{
	cow_storage_options options = options_for(h);
	cow_storage *storage = nullptr;

	h.base.user = &h;
	ok(cow_storage_new(count * sizeof(text), &options, &storage));
	return storage;
}

text *in(cow_storage *storage)
{
	void *p = nullptr;

	ok(cow_storage_data_mut(storage, &p));
	return static_cast<text *>(p);
}

const text *of(const cow_storage *storage)
{
	return static_cast<const text *>(cow_storage_data(storage));
}

/* Short ones live inside of the object, long ones on the heap. */
std::string sample(size_t i)
{
	return std::string(i % 50, static_cast<char>('a' + i % 26)) +
	       std::to_string(i);
}

void fill_texts(cow_storage *storage, size_t count)
{
	text *t = in(storage);

	for (size_t i = 0; i < count; i++)
		t[i].value = sample(i);
}

void check_texts(const cow_storage *storage, size_t count)
{
	for (size_t i = 0; i < count; i++)
		must(of(storage)[i].value == sample(i));
}

} // namespace

static const size_t counts[] = { 1, 3, 100, 5000, 100000 };

START_TEST(born_and_destroyed)
{
	size_t count = counts[_i];
	hooks h = texts();
	cow_storage *storage = new_texts(h, count);

	ck_assert_int_eq(living, static_cast<long>(count));
	for (size_t i = 0; i < count; i++)
		must(of(storage)[i].value == "born");
	fill_texts(storage, count);
	check_texts(storage, count);
	cow_storage_ref(storage);
	cow_storage_unref(storage);
	ck_assert_int_eq(living, static_cast<long>(count));
	cow_storage_unref(storage);
	ck_assert_int_eq(living, 0);
}
END_TEST

START_TEST(clones_are_made_through_copy)
{
	size_t count = counts[_i];
	hooks h = texts();
	cow_storage *a = new_texts(h, count), *b = nullptr, *c = nullptr;

	fill_texts(a, count);
	cow_stats before = stats_now();
	ok(cow_storage_lazy_clone(a, &b));
	cow_stats after = stats_now();
	ck_assert_uint_eq(after.clones_eager, before.clones_eager + 1);
	ck_assert_uint_eq(after.fallbacks[COW_FALLBACK_ELEMENTS],
	                  before.fallbacks[COW_FALLBACK_ELEMENTS] + 1);
	ck_assert_int_eq(living, static_cast<long>(2 * count));
	must(of(a) != of(b));
	for (size_t i = 0; i < count; i++)
		in(a)[i].value += "!";
	check_texts(b, count);
	ok(cow_storage_clone(b, &c));
	ck_assert_int_eq(living, static_cast<long>(3 * count));
	cow_storage_unref(b);
	cow_storage_unref(a);
	check_texts(c, count);
	cow_storage_unref(c);
	ck_assert_int_eq(living, 0);
}
END_TEST

/* Every hint means the same here: elements are never moved as bytes. */
START_TEST(writing_moves_nothing)
{
	hooks h = texts();
	cow_storage *a = new_texts(h, 20000), *b = nullptr;
	const void *where = cow_storage_data(a);

	fill_texts(a, 20000);
	ok(cow_storage_lazy_clone(a, &b));
	for (int hint = 0; hint < 3; hint++) {
		void *p = nullptr;

		ok(cow_storage_data_mut_range(
			a, 0, 20000 * sizeof(text),
			static_cast<cow_write_hint>(hint), &p));
		ck_assert_ptr_eq(p, where);
		check_texts(a, 20000);
	}
	cow_storage_unref(a);
	check_texts(b, 20000);
	cow_storage_unref(b);
	ck_assert_int_eq(living, 0);
}
END_TEST

START_TEST(bytes_are_refused)
{
	hooks h = texts();
	cow_storage *storage = new_texts(h, 10), *none = nullptr;
	cow_storage_options options = options_for(h);

	fill_texts(storage, 10);
	fails(-EOPNOTSUPP, cow_storage_resize(storage, 20 * sizeof(text)));
	fails(-EOPNOTSUPP, cow_storage_resize(storage, 5 * sizeof(text)));
	fails(-EINVAL, cow_storage_new(10 * sizeof(text) + 1, &options,
	                               &none));
	options.flags = COW_STORAGE_TRANSPARENT;
	ck_assert_uint_eq(cow_storage_bytes(storage), 10 * sizeof(text));
	check_texts(storage, 10);
	cow_storage_unref(storage);
	ck_assert_int_eq(living, 0);
}
END_TEST

START_TEST(hooks_that_make_no_sense)
{
	cow_storage *none = nullptr;
	hooks h = texts();
	cow_storage_options options = options_for(h);

	h.base.element_bytes = 0;
	fails(-EINVAL, cow_storage_new(sizeof(text), &options, &none));
	h = texts();
	h.base.copy = nullptr;
	fails(-EINVAL, cow_storage_new(sizeof(text), &options, &none));
	h = texts();
	h.base.size = 0;
	fails(-EINVAL, cow_storage_new(sizeof(text), &options, &none));
	ck_assert_ptr_null(none);
	ck_assert_int_eq(living, 0);
}
END_TEST

/* A hook that fails makes its call fail, and nothing is left half made. */
START_TEST(hooks_that_fail)
{
	hooks h = texts();
	cow_storage *storage = new_texts(h, 1000), *none = nullptr;
	cow_storage_options options = options_for(h);

	fill_texts(storage, 1000);
	h.fail_copy = -EIO;
	ck_assert_int_eq(cow_storage_lazy_clone(storage, &none), -EIO);
	ck_assert_int_eq(cow_storage_clone(storage, &none), -EIO);
	h.fail_construct = -ENOSPC;
	ck_assert_int_eq(cow_storage_new(sizeof(text), &options, &none),
	                 -ENOSPC);
	ck_assert_ptr_null(none);
	ck_assert_int_eq(living, 1000);
	check_texts(storage, 1000);
	h.fail_copy = 0;
	ok(cow_storage_lazy_clone(storage, &none));
	check_texts(none, 1000);
	cow_storage_unref(none);
	cow_storage_unref(storage);
	ck_assert_int_eq(living, 0);
}
END_TEST

/* Without `construct`, zero bytes are elements; without `destroy`, the end is
 * nothing special. */
START_TEST(hooks_that_are_left_out)
{
	hooks h = texts();
	cow_storage *a, *b = nullptr;

	h.base.construct = nullptr;
	h.base.destroy = nullptr;
	h.base.element_bytes = 8;
	h.base.copy = [](void *, void *dst, const void *src, size_t count) {
		memcpy(dst, src, 8 * count);
		return 0;
	};
	a = new_storage(100000, 0);
	memset(mut(a), 0xff, 100000);
	cow_storage_unref(a);
	a = new_texts(h, 12500 * 8 / sizeof(text));
	ck_bytes(cow_storage_data(a), cow_storage_bytes(a), 0);
	ok(cow_storage_lazy_clone(a, &b));
	must(cow_storage_data(a) != cow_storage_data(b));
	cow_storage_unref(a);
	ck_bytes(cow_storage_data(b), cow_storage_bytes(b), 0);
	cow_storage_unref(b);
}
END_TEST

static void copies_in_a_child(void *arg)
{
	cow_storage *a = static_cast<cow_storage *>(arg), *b = nullptr;

	check_texts(a, 5000);
	ok(cow_storage_lazy_clone(a, &b));
	in(a)[7].value = "the child's";
	check_texts(b, 5000);
	cow_storage_unref(b);
	cow_storage_unref(a);
	ck_assert_int_eq(living, 0);
}

START_TEST(elements_over_a_fork)
{
	hooks h = texts();
	cow_storage *storage = new_texts(h, 5000);

	fill_texts(storage, 5000);
	in_child(copies_in_a_child, storage);
	check_texts(storage, 5000);
	cow_storage_unref(storage);
	ck_assert_int_eq(living, 0);
}
END_TEST

int main()
{
	Suite *suite = suite_create("elements");
	TCase *tcase = add_case(suite, "elements");

	tcase_add_loop_test(tcase, born_and_destroyed, 0, 5);
	tcase_add_loop_test(tcase, clones_are_made_through_copy, 0, 5);
	tcase_add_test(tcase, writing_moves_nothing);
	tcase_add_test(tcase, bytes_are_refused);
	tcase_add_test(tcase, hooks_that_make_no_sense);
	tcase_add_test(tcase, hooks_that_fail);
	tcase_add_test(tcase, hooks_that_are_left_out);
	tcase_add_test(tcase, elements_over_a_fork);
	return run_suite(suite);
}
