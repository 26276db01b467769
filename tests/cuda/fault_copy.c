/* SPDX-License-Identifier: MIT */
/*
 * Copies of CUDA devices while the driver fails
 *
 * Each call of the driver, of every name, fails in turn. The copy fails with the driver's
 * description, or finds another way. No bytes are lost, and the next copy succeeds.
 */
#include "tests/support/cuda.h"
#include "tests/support/fault/fault.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <string.h>

#define SIDE 40

/* What a process does only once is done first. */
static const char *const names[] = {
	"cuModuleLoadData",
	"cuModuleGetFunction",
	"cuMemHostAlloc",
#define CALL(need, member, name, symbol, version, parameters) #name,
#include "cuda/calls.h"
#undef CALL
};

struct tensors {
	struct cow_tensor *h, *p, *d, *e, *f, *large, *far;
};

static struct cow_tensor *on(int device, enum cow_dtype type, int64_t n, int64_t m)
{
	struct cow_tensor_options o = { .size = sizeof(o), .device = { COW_DEVICE_CUDA, device } };
	struct cow_tensor *t;

	ok(cow_tensor_new(type, 2, SIZES(n, m), &o, &t));
	return t;
}

static void make(struct tensors *t)
{
	struct cow_storage *s;

	t->h = counting(SIDE, SIDE);
	t->d = on(0, COW_INT32, SIDE, SIDE);
	t->e = on(0, COW_FLOAT32, SIDE, SIDE);
	t->f = on(1, COW_INT32, SIDE, SIDE);
	t->large = counting(1500, 1500); /* more than two buffers of the ring */
	t->far = on(0, COW_INT32, 1500, 1500);
	ok(cow_cuda_pinned_new(SIDE * SIDE * 4, &s));
	ok(cow_tensor_on(s, COW_INT32, 2, SIZES(SIDE, SIDE), NULL, 0, &t->p));
	cow_storage_unref(s);
	ok(cow_tensor_copy(t->p, t->h, 0));
	ok(cow_tensor_copy(t->d, t->h, 0));
	ok(cow_tensor_copy(t->f, t->h, 0));
	ok(cow_tensor_copy(t->far, t->large, 0));
}

static void drop(struct tensors *t)
{
	cow_tensor_unref(t->h);
	cow_tensor_unref(t->p);
	cow_tensor_unref(t->d);
	cow_tensor_unref(t->e);
	cow_tensor_unref(t->f);
	cow_tensor_unref(t->large);
	cow_tensor_unref(t->far);
}

/* One of the copies. */
static int copy(struct tensors *t, int kind)
{
	struct cow_work *w = NULL;
	struct cow_tensor *v;
	int r;

	switch (kind) {
	case 0:
		return cow_tensor_copy(t->d, t->h, 0);
	case 1:
		return cow_tensor_copy(t->d, t->p, COW_COPY_NON_BLOCKING);
	case 2:
		return cow_tensor_copy(t->f, t->d, 0);
	case 3:
		return cow_tensor_copy(t->e, t->d, 0);
	case 4: /* a square: the kernels' other module */
		ok(cow_tensor_transpose(t->d, 0, 1, &v));
		r = cow_tensor_copy(t->e, v, 0);
		cow_tensor_unref(v);
		return r;
	case 5:
		return cow_tensor_copy(t->far, t->large, 0);
	case 6:
		return cow_tensor_copy(t->large, t->far, 0);
	case 7:
		r = cow_tensor_copy_begin(t->p, t->d, 0, &w);
		if (r == 0)
			r = cow_work_wait(w);
		cow_work_free(w);
		return r;
	default: /* with a temporary on the device */
		ok(cow_tensor_transpose(t->d, 0, 1, &v));
		r = cow_tensor_copy_begin(t->p, v, 0, &w);
		if (r == 0)
			r = cow_work_wait(w);
		cow_work_free(w);
		cow_tensor_unref(v);
		return r;
	}
}

/* The sources have their old bytes, also if a copy failed. */
static void check(struct tensors *t)
{
	struct cow_tensor *a = tensor(COW_INT32, SIDE, SIDE), *b = counting(SIDE, SIDE);
	struct cow_tensor *c = counting(1500, 1500);

	cuda_finish(0);
	cuda_finish(1);
	ok(cow_tensor_copy(a, t->d, 0));
	must(cow_tensor_equal(a, b) == 1);
	ok(cow_tensor_copy(a, t->f, 0));
	must(cow_tensor_equal(a, b) == 1);
	must(cow_tensor_equal(t->h, b) == 1);
	must(cow_tensor_equal(t->large, c) == 1);
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(c);
}

static void once(int kind, const char *name, unsigned long n, bool *ret_more)
{
	uint64_t before = ref.calls(name);
	struct tensors t;
	int r;

	make(&t);
	before = ref.calls(name);
	ref.fail_call(name, n, COW_CU_OUT_OF_MEMORY);
	r = copy(&t, kind);
	ref.fail_call(name, 0, 0);
	*ret_more = ref.calls(name) - before >= n;
	if (r != -ENOMEM && r != 0)
		ck_abort_msg("%d: %s %lu gave %d: %s", kind, name, n, r, cow_last_error());
	if (r < 0 && !strstr(cow_last_error(), "memory"))
		ck_abort_msg("%d: %s %lu: %s", kind, name, n, cow_last_error());
	if (!*ret_more)
		ck_assert_int_eq(r, 0);
	/* All work ends. */
	if (kind == 5 || kind == 6) {
		/* Both ways through buffers that a failed copy may still be using. */
		ok(copy(&t, 5));
		ok(copy(&t, 6));
	} else {
		ok(copy(&t, kind == 8 ? 7 : kind));
	}
	check(&t);
	drop(&t);
}

START_TEST(each_call)
{
	unsigned long total = 0;

	cuda_start();
	for (size_t i = 0; i < COUNT(names); i++) {
		bool more = ref.calls(names[i]) != UINT64_MAX && strcmp(names[i], "cuGetErrorName") != 0 &&
		            strcmp(names[i], "cuGetErrorString") != 0 &&
		            strcmp(names[i], "cuCtxPopCurrent") != 0;

		for (unsigned long n = 1; more; n++) {
			once(_i, names[i], n, &more);
			total += more;
		}
	}
	must(total >= 2);
	cuda_finish(0);
	cuda_finish(1);
	ok(cow_cuda_pinned_empty_cache());
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

/* No memory to note that pinned memory is in use: the copy has run when it returns, and
 * the next owner of that memory does not disturb it. */
START_TEST(in_use_without_a_note)
{
	unsigned char want[SIDE * SIDE * 4], *host;
	struct cow_storage *s;
	struct tensors t;
	void *data;
	int r;

	cuda_start();
	make(&t);
	memset(want, 0x11, sizeof(want));
	ok(cow_tensor_data_mut(t.p, COW_WRITE_ALL, &data));
	memcpy(data, want, sizeof(want));
	ref.set(REF_DELAY_US, 20000);
	fault_after(_i + 1, ENOMEM);
	r = cow_tensor_copy(t.d, t.p, COW_COPY_NON_BLOCKING);
	must(fault_disarm() || _i > 0);
	cow_tensor_unref(t.p);
	ok(cow_cuda_pinned_new(sizeof(want), &s));
	ok(cow_storage_data_mut(s, &data));
	memset(data, 0xee, sizeof(want));
	ok(cow_cuda_stream_wait(0, NULL));
	cow_storage_unref(s);
	ok(cow_cuda_pinned_new(sizeof(want), &s));
	ok(cow_tensor_on(s, COW_INT32, 2, SIZES(SIDE, SIDE), NULL, 0, &t.p));
	cow_storage_unref(s);
	ok(cow_tensor_copy(t.p, t.d, 0));
	host = (unsigned char *)(uintptr_t)cow_tensor_data(t.p);
	must(r < 0 || memcmp(host, want, sizeof(want)) == 0);
	drop(&t);
	cuda_finish(0);
	cuda_finish(1);
	ok(cow_cuda_pinned_empty_cache());
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_cuda_copy");
	TCase *tcase = add_case(suite, "copies");

	driver_choose();
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, each_call, 0, 9);
	tcase_add_loop_test(tcase, in_use_without_a_note, 0, 4);
	return run_suite(suite);
}
