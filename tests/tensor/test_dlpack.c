/* SPDX-License-Identifier: MIT */
/*
 * DLPack: exports and imports, and when their deleters are called
 */
#include "tests/device/fake.h"
#include "tests/support/dlpack.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int deleted;

static void delete_legacy(Managed *self)
{
	must(self->manager_ctx == &deleted);
	deleted++;
}

static unsigned long awaits; /* of the device, when it was deleted */

static void delete_versioned(Versioned *self)
{
	must(self->manager_ctx == &deleted);
	awaits = fake_device_counts.awaits;
	deleted++;
}

/* ---- Export ------------------------------------------------------------------- */

START_TEST(export)
{
	struct cow_tensor *t = transpose(counting(2, 3), 0, 1);
	Versioned *v;
	Managed *m;
	void *p;

	ok(cow_tensor_to_dlpack(t, true, false, &p));
	v = p;
	must(v->version.major == 1 && v->flags == 0);
	must(v->dl_tensor.device.device_type == 1 && v->dl_tensor.ndim == 2);
	must(v->dl_tensor.dtype.code == 0 && v->dl_tensor.dtype.bits == 32 &&
	     v->dl_tensor.dtype.lanes == 1);
	must(v->dl_tensor.shape[0] == 3 && v->dl_tensor.strides[0] == 1 &&
	     v->dl_tensor.strides[1] == 3);
	ck_assert_ptr_eq((char *)v->dl_tensor.data + v->dl_tensor.byte_offset,
	                 cow_tensor_data(t));
	ok(cow_tensor_to_dlpack(t, false, false, &p));
	m = p;
	ck_assert_ptr_eq(m->dl_tensor.data, v->dl_tensor.data);
	/* What the consumer writes is seen, and outlives the tensor. */
	*(int32_t *)m->dl_tensor.data = 17;
	ck_assert_int_eq(*(const int32_t *)cow_tensor_data(t), 17);
	cow_tensor_unref(t);
	ck_assert_int_eq(*(int32_t *)v->dl_tensor.data, 17);
	v->deleter(v);
	m->deleter(m);
}
END_TEST

/* The consumer writes without notice: clones must not see it, made before or after. */
START_TEST(export_of_a_lazy_one)
{
	struct cow_tensor *t = counting(1024, 1024), *before, *after;
	Versioned *v;
	void *p;

	ok(cow_tensor_lazy_clone(t, &before));
	ok(cow_tensor_to_dlpack(t, true, false, &p));
	v = p;
	ok(cow_tensor_lazy_clone(t, &after));
	((int32_t *)v->dl_tensor.data)[5] = -1;
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(t))[5], -1);
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(before))[5], 5);
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(after))[5], 5);
	v->deleter(v);
	cow_tensor_unref(before);
	cow_tensor_unref(after);
	cow_tensor_unref(t);
}
END_TEST

/* Read-only: nothing is copied, and the bytes stay, also if the tensor is written. */
START_TEST(export_read_only)
{
	struct cow_tensor *t = counting(1024, 1024);
	struct cow_stats before = stats_now();
	const int32_t *seen;
	Versioned *v;
	void *p;

	ok(cow_tensor_to_dlpack(t, true, true, &p));
	v = p;
	ck_assert_uint_eq(v->flags, 1);
	ck_assert_uint_eq(stats_now().bytes_copied, before.bytes_copied);
	ck_assert_ptr_eq(v->dl_tensor.data, cow_tensor_data(t));
	ok(cow_tensor_fill(t, COW_INT8, "\7"));
	seen = v->dl_tensor.data;
	must(seen[0] == 0 && seen[1048575] == 1048575);
	cow_tensor_unref(t);
	must(seen[0] == 0 && seen[1048575] == 1048575);
	v->deleter(v);
}
END_TEST

START_TEST(export_refused)
{
	struct cow_tensor *t = counting(3), *n, *meta = tensor_on_meta(COW_INT8, 1, SIZES(3));
	void *p = (void *)1;

	fails(-EINVAL, cow_tensor_to_dlpack(t, false, true, &p));
	fails(-EINVAL, cow_tensor_to_dlpack(NULL, true, true, &p));
	ok(cow_tensor_neg(t, &n));
	fails(-EINVAL, cow_tensor_to_dlpack(n, true, false, &p));
	fails(-ENOTSUP, cow_tensor_to_dlpack(meta, true, false, &p));
	ck_assert_ptr_eq(p, (void *)1);
	ck_assert_uint_eq(refs_of(cow_tensor_storage(t)), 2);
	cow_tensor_unref(n);
	cow_tensor_unref(t);
	cow_tensor_unref(meta);
}
END_TEST

/* Every type goes and comes back as itself. */
START_TEST(types)
{
	enum cow_dtype dtype = (enum cow_dtype)_i;
	static const uint8_t codes[] = { 6, 0, 0, 0, 0, 1, 1, 1, 1, 2, 4, 2, 2, 5, 5, 5, 10, 12 };
	struct cow_tensor *t = tensor(dtype, 3, 4), *u;
	const void *at;
	Versioned *v;
	void *p;

	ok(cow_tensor_to_dlpack(t, true, false, &p));
	v = p;
	ck_assert_int_eq(v->dl_tensor.dtype.code, codes[_i]);
	at = cow_tensor_data(t);
	cow_tensor_unref(t);
	ok(cow_tensor_from_dlpack(p, true, &u));
	ck_assert_int_eq(cow_tensor_dtype(u), dtype);
	ck_sizes(u, 3, 4);
	ck_strides(u, 4, 1);
	ck_assert_ptr_eq(cow_tensor_data(u), at);
	cow_tensor_unref(u);
}
END_TEST

/* ---- Import ------------------------------------------------------------------------ */

static int32_t memory[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };

static Versioned array(int64_t *shape, int64_t *strides)
{
	return (Versioned){
		.version = { 1, 1 },
		.manager_ctx = &deleted,
		.deleter = delete_versioned,
		.dl_tensor = { .data = memory, .device = { 1, 0 }, .ndim = 2,
		               .dtype = { 0, 32, 1 }, .shape = shape,
		               .strides = strides },
	};
}

START_TEST(import)
{
	int64_t shape[] = { 2, 3 }, strides[] = { 1, 2 };
	Versioned v = array(shape, NULL);
	Managed m = { .dl_tensor = v.dl_tensor, .manager_ctx = &deleted,
		      .deleter = delete_legacy };
	struct cow_tensor *t, *u;
	void *p;

	deleted = 0;
	v.dl_tensor.byte_offset = 4;
	ok(cow_tensor_from_dlpack(&v, true, &t));
	ck_elements(t, 1, 2, 3, 4, 5, 6);
	ck_assert_ptr_eq(cow_tensor_data(t), memory + 1);
	m.dl_tensor.strides = strides;
	ok(cow_tensor_from_dlpack(&m, false, &u));
	ck_elements(u, 0, 2, 4, 1, 3, 5);
	ok(cow_tensor_data_mut(u, COW_WRITE_AUTO, &p));
	ck_assert_ptr_eq(p, memory);
	ck_assert_int_eq(deleted, 0);
	cow_tensor_unref(t);
	ck_assert_int_eq(deleted, 1);
	cow_tensor_unref(u);
	ck_assert_int_eq(deleted, 2);
	/* A producer without a deleter, and one without elements. */
	v.deleter = NULL;
	ok(cow_tensor_from_dlpack(&v, true, &t));
	cow_tensor_unref(t);
	v = array(shape, NULL);
	shape[1] = 0;
	v.dl_tensor.data = NULL;
	ok(cow_tensor_from_dlpack(&v, true, &t));
	ck_assert_int_eq(cow_tensor_numel(t), 0);
	ck_assert_int_eq(deleted, 2);
	cow_tensor_unref(t);
	ck_assert_int_eq(deleted, 3);
}
END_TEST

/* An array that is refused stays the caller's. */
START_TEST(import_refused)
{
	int64_t shape[] = { 2, 3 }, strides[] = { -3, 1 }, far[] = { INT64_MAX, INT64_MAX };
	struct cow_tensor *t = (void *)1;
	Versioned v, good = array(shape, NULL);

	deleted = 0;
	v = good;
	v.version.major = 2;
	fails(-ENOTSUP, cow_tensor_from_dlpack(&v, true, &t));
	v = good;
	v.dl_tensor.device.device_type = 2;
	fails(-ENODEV, cow_tensor_from_dlpack(&v, true, &t));
	must(strstr(cow_last_error(), "cuda:0 is not registered"));
	v.dl_tensor.device.device_type = 7;
	fails(-ENOTSUP, cow_tensor_from_dlpack(&v, true, &t));
	must(strstr(cow_last_error(), "device type 7"));
	v = good;
	v.dl_tensor.dtype.lanes = 2;
	fails(-ENOTSUP, cow_tensor_from_dlpack(&v, true, &t));
	v = good;
	v.dl_tensor.dtype.code = 3; /* opaque handles */
	fails(-ENOTSUP, cow_tensor_from_dlpack(&v, true, &t));
	v = good;
	v.dl_tensor.dtype.bits = 4;
	fails(-ENOTSUP, cow_tensor_from_dlpack(&v, true, &t));
	v = good;
	v.dl_tensor.strides = strides;
	fails(-ENOTSUP, cow_tensor_from_dlpack(&v, true, &t));
	v.dl_tensor.strides = far;
	fails(-EINVAL, cow_tensor_from_dlpack(&v, true, &t));
	far[0] = INT64_MAX - 2; /* the last one, but no end of it */
	far[1] = 1;
	fails(-EINVAL, cow_tensor_from_dlpack(&v, true, &t));
	v = good;
	v.dl_tensor.ndim = 65;
	fails(-EINVAL, cow_tensor_from_dlpack(&v, true, &t));
	v = good;
	v.dl_tensor.byte_offset = 1; /* after the storage was made */
	fails(-ERANGE, cow_tensor_from_dlpack(&v, true, &t));
	v.flags = 1;
	fails(-ERANGE, cow_tensor_from_dlpack(&v, true, &t));
	v = good;
	v.dl_tensor.data = NULL;
	for (v.flags = 0; v.flags < 2; v.flags++) {
		fails(-EINVAL, cow_tensor_from_dlpack(&v, true, &t));
		ck_assert_str_eq(cow_last_error(), "cow_tensor_from_dlpack: no data");
	}
	fails(-EINVAL, cow_tensor_from_dlpack(NULL, true, &t));
	ck_assert_ptr_eq(t, (void *)1);
	ck_assert_int_eq(deleted, 0);
}
END_TEST

/* Out and in again, the same memory; copies by what the device can do. */
START_TEST(another_device)
{
	struct cow_tensor *h = counting(4, 6), *t, *back, *host;
	const struct cow_to cpu = { .size = sizeof(cpu), .dtype = -1,
		                    .set_device = true,
		                    .format = COW_FORMAT_PRESERVE };
	int index = _i % 2;
	Versioned *v;
	void *p;

	fake_device_start((enum fake_skill)(_i / 2));
	t = tensor_on_fake(index, COW_INT32, 2, SIZES(4, 6));
	ok(cow_tensor_copy(t, h, 0));
	t = transpose(slice(t, 1, 1, 6, 2), 0, 1);
	h = transpose(slice(h, 1, 1, 6, 2), 0, 1);
	ok(cow_tensor_to_dlpack(t, true, false, &p));
	v = p;
	must(v->dl_tensor.device.device_type == 12 &&
	     v->dl_tensor.device.device_id == index);
	ok(cow_tensor_from_dlpack(v, true, &back));
	must(cow_tensor_device(back).type == COW_DEVICE_PRIVATE &&
	     cow_tensor_device(back).index == index);
	must((const char *)cow_storage_data(cow_tensor_storage(back)) ==
	     (const char *)cow_storage_data(cow_tensor_storage(t)) + 4);
	cow_tensor_unref(t); /* the export keeps the memory */
	ok(cow_tensor_to(back, &cpu, &host));
	ck_assert_int_eq(cow_tensor_equal(host, h), 1);
	cow_tensor_unref(host);
	ok(cow_tensor_fill(h, COW_INT32, &(int32_t){ 3 }));
	ok(cow_tensor_copy(back, h, 0));
	ck_assert_int_eq(cow_tensor_equal(back, h), 1);
	cow_tensor_unref(back);
	cow_tensor_unref(h);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	ck_assert_uint_eq(fake_device_counts.astray, 0);
	fake_device_stop();
}
END_TEST

/* Clones of an import live where it does, and so do theirs. */
START_TEST(another_device_cloned)
{
	struct cow_tensor *h = counting(4, 6), *t, *back, *a, *b, *c, *big;
	void *p;

	fake_device_start((enum fake_skill)_i);
	t = tensor_on_fake(1, COW_INT32, 2, SIZES(4, 6));
	ok(cow_tensor_copy(t, h, 0));
	ok(cow_tensor_to_dlpack(t, true, false, &p));
	ok(cow_tensor_from_dlpack(p, true, &back));
	cow_tensor_unref(t);
	ok(cow_tensor_lazy_clone(back, &a));
	ok(cow_tensor_lazy_clone(a, &b));
	ok(cow_tensor_clone(a, COW_FORMAT_PRESERVE, &c));
	ok(cow_tensor_fill(b, COW_INT32, &(int32_t){ 3 }));
	ok(cow_tensor_resize(a, 2, SIZES(8, 6), COW_FORMAT_CONTIGUOUS, &big));
	must(cow_tensor_device(b).type == COW_DEVICE_PRIVATE &&
	     cow_tensor_device(big).index == 1);
	ck_assert_uint_eq(fake_device_counts.live, 4);
	ck_assert_int_eq(cow_tensor_equal(a, h), 1);
	ck_assert_int_eq(cow_tensor_equal(back, h), 1);
	ck_assert_int_eq(cow_tensor_equal(c, h), 1);
	ok(cow_tensor_fill(h, COW_INT32, &(int32_t){ 3 }));
	ck_assert_int_eq(cow_tensor_equal(b, h), 1);
	for (int i = 0; i < 6; i++)
		cow_tensor_unref((struct cow_tensor *[]){ a, b, c, h, back, big }[i]);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	ck_assert_uint_eq(fake_device_counts.astray, 0);
	fake_device_stop();
}
END_TEST

/* A write on the device would not be noticed: the array is copied, and its owner freed. */
START_TEST(another_device_read_only)
{
	int64_t shape[] = { 2, 3 };
	struct cow_tensor *t, *mine, *zeros = counting(2, 3);
	Versioned v = array(shape, NULL);

	fake_device_start(FAKE_WITHIN);
	t = tensor_on_fake(0, COW_INT32, 2, SIZES(2, 3));
	ok(cow_tensor_copy(t, zeros, 0));
	deleted = 0;
	v.flags = 1;
	v.dl_tensor.device.device_type = 12;
	v.dl_tensor.data = (void *)(uintptr_t)cow_storage_data(cow_tensor_storage(t));
	/* The memory, the copy, the mark behind it, the wait. */
	for (unsigned long n = 1; n <= 4; n++) {
		fake_device_counts.fail_next = n;
		fails(n == 1 ? -ENOMEM : -EIO, cow_tensor_from_dlpack(&v, true, &mine));
		ck_assert_int_eq(deleted, 0); /* the caller's */
		ck_assert_uint_eq(fake_device_counts.live, 1);
	}
	fake_device_counts.awaits = 0;
	ok(cow_tensor_from_dlpack(&v, true, &mine));
	ck_assert_int_eq(deleted, 1);
	ck_assert_uint_eq(awaits, 1); /* nothing reads it any more */
	ck_assert_int_eq(cow_tensor_equal(mine, zeros), 1);
	ok(cow_tensor_fill(mine, COW_INT32, &(int32_t){ 9 }));
	ck_assert_int_eq(cow_tensor_equal(t, zeros), 1);
	cow_tensor_unref(mine);
	cow_tensor_unref(t);
	cow_tensor_unref(zeros);
	fake_device_stop();
	v.flags = 0;
	fails(-ENODEV, cow_tensor_from_dlpack(&v, true, &mine));
	must(strstr(cow_last_error(), "private:0"));
}
END_TEST

/* No device has such an index: not another one's, cut to fit, and not the current one. */
START_TEST(device_out_of_range)
{
	static const int32_t indices[] = { -1, 1 << 15, 1 << 16, INT32_MIN };
	int64_t shape[] = { 2, 3 };
	Versioned v = array(shape, NULL);
	struct cow_tensor *t;
	char id[16];

	deleted = 0;
	fake_device_start(FAKE_WITHIN);
	v.dl_tensor.device = (Device){ 12, indices[_i] };
	fails(-ENODEV, cow_tensor_from_dlpack(&v, true, &t));
	snprintf(id, sizeof(id), "%d", indices[_i]);
	must(strstr(cow_last_error(), id));
	ck_assert_int_eq(deleted, 0);
	fake_device_stop();
	/* Of the host, that means nothing. */
	v.dl_tensor.device.device_type = 1;
	ok(cow_tensor_from_dlpack(&v, true, &t));
	ck_assert_int_eq(cow_tensor_device(t).index, 0);
	cow_tensor_unref(t);
}
END_TEST

/* Pinned memory is the host's. */
START_TEST(pinned)
{
	int64_t shape[] = { 2, 3 };
	Versioned v = array(shape, NULL);
	struct cow_tensor *t;

	deleted = 0;
	v.dl_tensor.device.device_type = 3;
	ok(cow_tensor_from_dlpack(&v, true, &t));
	ck_assert_int_eq(cow_tensor_device(t).type, COW_DEVICE_CPU);
	ck_assert_ptr_eq(cow_tensor_data(t), v.dl_tensor.data);
	cow_tensor_unref(t);
	ck_assert_int_eq(deleted, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_dlpack");
	TCase *tcase = add_case(suite, "dlpack");

	tcase_add_test(tcase, export);
	tcase_add_test(tcase, export_of_a_lazy_one);
	tcase_add_test(tcase, export_read_only);
	tcase_add_test(tcase, export_refused);
	tcase_add_loop_test(tcase, types, 0, COW_QUINT8);
	tcase_add_test(tcase, import);
	tcase_add_test(tcase, import_refused);
	tcase_add_loop_test(tcase, another_device, 0, 2 * (FAKE_STRIDED + 1));
	tcase_add_loop_test(tcase, another_device_cloned, 0, FAKE_STRIDED + 1);
	tcase_add_test(tcase, another_device_read_only);
	tcase_add_loop_test(tcase, device_out_of_range, 0, 4);
	tcase_add_test(tcase, pinned);
	return run_suite(suite);
}
