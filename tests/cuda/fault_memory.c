/* SPDX-License-Identifier: MIT */
/*
 * Device memory and pinned memory while the driver fails, or the kernel
 *
 * Every operation runs with its n-th call of the driver failing, for all n until no call
 * fails, and for each call by its name. After any failure all memory is there, with its
 * bytes. The operation worked, or left a sentence; tried again, it works. At the end
 * nothing is left in the driver.
 */
#include "cuda/pinned.h"
#include "tests/support/cuda.h"
#include "tests/support/fault/fault.h"

#include <cowshed-share.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { UNKNOWN = 999, OUT = 2, KEEP = 3 * 1024 * 1024, PIECE = 2 << 20 };

static const char *const names[] = {
#define CALL(need, member, name, symbol, version, parameters) #name,
#include "cuda/calls.h"
#undef CALL
};

static struct cow__cuda *d;
static cow_cuda_stream side;
static struct cow_storage *kept, *kept_pinned;

struct operation {
	const char *name;
	int (*run)(void);
	bool never_fails; /* it has no way to say so */
};

static int new_of(size_t bytes, uint32_t backing, uint32_t flags)
{
	struct cow_cuda_options o = { sizeof(o), backing, flags, 0 };
	struct cow_storage *s = NULL;
	int r = cow_cuda_storage_new(0, bytes, &o, &s);

	must(r == 0 || s == NULL);
	if (r == 0)
		cow_storage_unref(s);
	return r;
}

static int small(void)
{
	return new_of(1000, COW_CUDA_CACHED, 0);
}

static int large(void)
{
	return new_of(50 * MIB, COW_CUDA_CACHED, 0);
}

static int zeroed(void)
{
	return new_of(5 * MIB, COW_CUDA_CACHED, COW_STORAGE_ZERO);
}

static int single(void)
{
	int r = new_of(3 * MIB, COW_CUDA_SINGLE, 0);

	return r < 0 ? r : cow_cuda_empty_cache(0);
}

static int single_zeroed(void)
{
	return new_of(3 * MIB, COW_CUDA_SINGLE, COW_STORAGE_ZERO);
}

/* Memory runs out, so cached memory has to be given back. */
static int tight(void)
{
	int r = new_of(600 * MIB, COW_CUDA_CACHED, 0);

	if (r == 0) {
		ok(cow_cuda_stream_set(0, side));
		r = new_of(700 * MIB, COW_CUDA_CACHED, 0);
		ok(cow_cuda_stream_set(0, NULL));
	}
	return r;
}

static int used_elsewhere(void)
{
	struct cow_storage *s;
	int r = cow_cuda_storage_new(0, MIB, NULL, &s);

	if (r < 0)
		return r;
	r = cow_cuda_record_stream(s, side);
	cow_storage_unref(s); /* the mark may fail: it is made later */
	return r;
}

static int emptied(void)
{
	return cow_cuda_empty_cache(-1);
}

static int a_stream(void)
{
	cow_cuda_stream s;
	int r = cow_cuda_stream_new(0, 0, &s);

	if (r < 0)
		return r;
	ok(cow_cuda_stream_set(0, s));
	r = new_of(MIB, COW_CUDA_CACHED, 0);
	ok(cow_cuda_stream_set(0, NULL));
	if (r == 0)
		r = cow_cuda_stream_free(0, s);
	if (r < 0) {
		must(cow_last_error()[0] != '\0');
		while (cow_cuda_stream_free(0, s) < 0)
			; /* as it was: it can be ended */
	}
	return r;
}

/* If the use can't be noted, the call waits. */
static void noted(struct cow_storage *s)
{
	int r = cow__cuda_pinned_used(cow_storage_data(s), d, side);

	must(r == 1 || r == -ENOMEM);
}

static int pinned(void)
{
	struct cow_storage *s;
	int r = cow_cuda_pinned_new(2 * MIB, &s);

	if (r < 0)
		return r;
	memset(mut(s), 1, 2 * MIB);
	noted(s);
	cow_storage_unref(s);
	return cow_cuda_pinned_empty_cache();
}

/* Its bytes are there, at its old addresses or at new ones. */
static int aliased(void)
{
	uint64_t offset;
	struct cow_storage *s;
	int fd, r = cow_cuda_pinned_new(2 * MIB, &s);

	if (r < 0)
		return r;
	memset(mut(s), 1, 2 * MIB);
	noted(s);
	r = cow_storage_export(s, COW_SHARE_ALIAS, &fd, &offset);
	if (r == 0)
		close(fd);
	ck_bytes(data(s), 2 * MIB, 1);
	noted(s);
	cow_storage_unref(s);
	return r < 0 ? r : cow_cuda_pinned_empty_cache();
}

static int in_pieces(void)
{
	struct cow_cuda_options o = { .size = sizeof(o), .backing = COW_CUDA_PIECES };
	struct cow_storage *s, *c;
	void *p;
	int r = cow_cuda_storage_new(0, 3 * PIECE, &o, &s);

	if (r < 0)
		return r;
	r = cow_storage_lazy_clone(s, &c);
	if (r == 0) {
		r = cow_storage_data_mut_range(c, 0, 1, COW_WRITE_AUTO, &p);
		cow_storage_unref(c);
	}
	cow_storage_unref(s);
	return r;
}

static int cloned(void)
{
	struct cow_storage *c;
	int r = cow_storage_lazy_clone(kept, &c);
	void *p;

	if (r < 0)
		return r;
	r = cow_storage_data_mut(c, &p);
	cow_storage_unref(c);
	return r;
}

/* Streams in order, and what is told of a device. */
static int ordered(void)
{
	cow_cuda_stream was = side;
	int r = cow_cuda_stream_after(0, side, NULL);

	if (r == 0)
		r = cow_cuda_stream_wait(0, side);
	ok(cow_cuda_stream_get(0, &was));
	must(was == NULL);
	return r;
}

static int told(void)
{
	struct cow_cuda_info i = { .size = sizeof(i), .devices = 77 };
	struct cow_cuda_device_info di = { .size = sizeof(di), .memory_bytes = 77 };
	int r = cow_cuda_info(&i);

	must(r < 0 ? i.devices == 77 : i.devices == cow_cuda_count());
	if (r < 0)
		return r;
	r = cow_cuda_device_info(0, &di);
	must((r < 0) == (di.memory_bytes == 77));
	return r;
}

static void ran_out(void *user, int device, size_t bytes, uint64_t reserved,
                    uint64_t device_free)
{
	(void)device, (void)bytes, (void)reserved, (void)device_free;
	++*(int *)user;
}

/* All accounts at once, while memory is made and given back. */
static int accounts(void)
{
	struct cow_cuda_trace_entry entries[8];
	struct cow_cuda_block blocks[8];
	struct cow_cuda_stats stats = { .size = sizeof(stats) };
	int out = 0, r;
	const struct cow_cuda_observer o = { .size = sizeof(o), .out = ran_out,
		                             .user = &out };

	r = cow_cuda_trace_start(8);
	if (r < 0)
		return r;
	ok(cow_cuda_observe(&o));
	cow_cuda_annotate(5);
	ok(cow_cuda_set_poison(true));
	r = cow_cuda_set_fraction(0, 0.9);
	if (r == 0)
		r = new_of(50 * MIB, COW_CUDA_CACHED, 0);
	must(cow_cuda_trace_read(0, entries, 8) >= 0);
	must(cow_cuda_snapshot(0, blocks, 8) >= 0);
	must(cow_cuda_is_pinned(kept_pinned) >= 0 && cow_cuda_is_pinned(kept) <= 0);
	ok(cow_cuda_reset_peaks(0));
	ok(cow_cuda_get_stats(0, &stats));
	ok(cow_cuda_set_poison(false));
	cow_cuda_annotate(0);
	ok(cow_cuda_observe(NULL));
	ok(cow_cuda_trace_start(0));
	while (cow_cuda_set_fraction(0, 1) < 0)
		;
	must(out == 0 || r == -ENOMEM);
	return r;
}

static const struct operation operations[] = {
	{ "small", small, false },
	{ "large", large, false },
	{ "zeroed", zeroed, false },
	{ "single", single, false },
	{ "single_zeroed", single_zeroed, false },
	{ "tight", tight, false },
	{ "used_elsewhere", used_elsewhere, false },
	{ "emptied", emptied, false },
	{ "a_stream", a_stream, false },
	{ "pinned", pinned, false },
	{ "cloned", cloned, false },
	{ "aliased", aliased, false },
	{ "in_pieces", in_pieces, false },
	{ "ordered", ordered, false },
	{ "told", told, false },
	{ "accounts", accounts, false },
};

static void begin(void)
{
	cuda_start();
	ref.set(REF_DELAY_US, 100);
	ok(cow__cuda_get(0, &d));
	side = cuda_stream(0);
	kept = cuda_storage(0, KEEP, COW_CUDA_CACHED);
	cuda_fill(kept, 0x42, NULL);
	ok(cow_cuda_pinned_new(KEEP, &kept_pinned));
	memset(mut(kept_pinned), 0x43, KEEP);
	cuda_finish(0);
}

static void settle(void)
{
	cuda_finish(0);
	/* Waiting blocks get the marks that they could not have. */
	ok(cow_cuda_empty_cache(-1));
	cuda_finish(0);
	ok(cow_cuda_empty_cache(-1));
	ok(cow_cuda_pinned_empty_cache());
}

static void end(void)
{
	struct ref_usage u;

	cuda_check(kept, 0x42);
	ck_bytes(data(kept_pinned), KEEP, 0x43);
	cow_storage_unref(kept);
	cow_storage_unref(kept_pinned);
	settle();
	ck_assert_uint_eq(cuda_picture(0), 0);
	ck_assert_uint_eq(cuda_stats(0).active[0].current, 0);
	ck_assert_uint_eq(cuda_stats(0).segment[0].current, 0);
	ref.usage(&u);
	ck_assert_uint_eq(u.bytes, 0);
	ck_assert_uint_eq(u.handles, 0);
	ck_assert_uint_eq(u.mappings, 0);
	ck_assert_uint_eq(u.registered, 0);
}

/* One operation, one name, one code, all n. Returns how often it fired. */
static int sweep(const struct operation *o, const char *name, int code)
{
	int fired = 0;

	for (unsigned long n = 1;; n++) {
		uint64_t before = ref.calls(name);
		bool hit;
		int r;

		must(ref.fail_call(name, n, code) == 0);
		r = o->run();
		hit = ref.calls(name) - before >= n;
		must(ref.fail_call(name, 0, 0) == 0);
		if (r < 0 && cow_last_error()[0] == '\0')
			ck_abort_msg("%s, %s %lu: no sentence", o->name, name, n);
		if (r < 0 && !hit)
			ck_abort_msg("%s, %s %lu: %d: %s", o->name, name, n, r,
			             cow_last_error());
		if (o->run != in_pieces) /* which are in no picture */
			cuda_picture(0);
		r = o->run();
		if (r < 0)
			ck_abort_msg("%s, after %s %lu: %d: %s", o->name, name, n, r,
			             cow_last_error());
		settle();
		if (!hit)
			return fired;
		fired++;
	}
}

START_TEST(each_call_fails)
{
	const struct operation *o = &operations[_i];
	int fired = 0;

	begin();
	ok(o->run());
	settle();
	for (size_t i = 0; i < COUNT(names); i++) {
		if (ref.calls(names[i]) == UINT64_MAX ||
		    strcmp(names[i], "cuGetProcAddress") == 0)
			continue;
		fired += sweep(o, names[i], UNKNOWN);
		if (strncmp(names[i], "cuMem", 5) == 0)
			fired += sweep(o, names[i], OUT);
	}
	ck_assert_int_gt(fired, 0);
	end();
}
END_TEST

/* The same with the kernel and our own pools. */
static const int errors[] = { ENOMEM, EPERM, FAULT_POOLS, FAULT_LASTING | ENOMEM,
	                      FAULT_LASTING | FAULT_POOLS };

START_TEST(each_kernel_call_fails)
{
	const struct operation *o = &operations[(size_t)_i / COUNT(errors)];
	int error = errors[(size_t)_i % COUNT(errors)];
	bool fired = true;

	begin();
	ok(o->run());
	settle();
	for (int n = 1; fired; n++) {
		int r;

		fault_after(n, error);
		r = o->run();
		fired = fault_disarm();
		if (r < 0 && (!fired || cow_last_error()[0] == '\0'))
			ck_abort_msg("%s, call %d (%ld): %d: %s", o->name, n,
			             fault_fired_nr(), r, cow_last_error());
		r = o->run();
		if (r < 0)
			ck_abort_msg("%s, after call %d (%ld): %d: %s", o->name, n,
			             fault_fired_nr(), r, cow_last_error());
		settle();
	}
	end();
}
END_TEST

struct start {
	const char *name;
	unsigned long n;
};

static void start_once(void *arg)
{
	const struct start *s = arg;
	bool hit;
	int r;

	driver_start();
	hit = ref.calls(s->name) != UINT64_MAX;
	if (hit)
		ref.fail_call(s->name, s->n, UNKNOWN);
	r = cow_cuda_start();
	if (r < 0)
		must(hit && cow_last_error()[0] != '\0' && cow_cuda_count() == 0);
	if (hit)
		ref.fail_call(s->name, 0, 0);
	ok(cow_cuda_start());
	must(cow_cuda_count() > 0);
	ok(new_of(MIB, COW_CUDA_CACHED, 0));
}

/* Starting fails as a whole, and can be tried again. */
START_TEST(start_fails)
{
	for (unsigned long n = 1; n <= 3; n++) {
		struct start s = { names[_i], n };

		in_child(start_once, &s);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fault_cuda_memory");
	TCase *c = add_case(s, "driver");

	tcase_add_loop_test(c, each_call_fails, 0, (int)COUNT(operations));
	tcase_add_loop_test(c, each_kernel_call_fails, 0,
	                    (int)(COUNT(errors) * COUNT(operations)));
	tcase_add_loop_test(add_bare_case(s, "start"), start_fails, 0, (int)COUNT(names));
	return run_suite(s);
}
