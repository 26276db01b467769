/* SPDX-License-Identifier: MIT */
/*
 * Streams that end, and streams that the driver did not end
 *
 * The work that a stream has when it ends is waited for by marks, as before. No call uses the
 * stream itself any more: the reference driver ends a process that does. A stream that the
 * driver keeps goes on as before.
 */
#include "tests/support/cuda.h"
#include "tests/support/meanwhile.h"

#include <cowshed-share.h>
#include <errno.h>
#include <unistd.h>

#define PIECE (2 * MIB)

enum { UNKNOWN = 999 };

static cow_cuda_stream side;

static void begin(void)
{
	cuda_start();
	side = cuda_stream(0);
}

static void end(void)
{
	ref.set(REF_HOLD, 0);
	cuda_finish(0);
	cuda_nothing_left();
}

static struct cow_storage *made_on_side(uint32_t backing, unsigned char value)
{
	struct cow_storage *s;

	ok(cow_cuda_stream_set(0, side));
	s = cuda_storage(0, PIECE, backing);
	cuda_fill(s, value, side);
	ok(cow_cuda_stream_set(0, NULL));
	return s;
}

static void ends_now(void)
{
	ok(cow_cuda_stream_free(0, side));
}

/* ---- Memory of a stream that ended -------------------------------------------------- */

/* Its clone is written, and it is sent, after that. */
START_TEST(memory_outlives_its_stream)
{
	struct cow_storage *s, *c;
	uint64_t offset;
	int fd;

	for (uint32_t backing = COW_CUDA_CACHED; backing <= COW_CUDA_PIECES; backing++) {
		begin();
		s = made_on_side(backing, 1);
		ends_now();
		c = lazy(s);
		cuda_finish(0);
		(void)mut(c);
		cuda_fill(c, 2, NULL);
		cuda_finish(0);
		cuda_check(s, 1);
		cuda_check(c, 2);
		cow_storage_unref(c);
		cow_storage_unref(s);
		side = cuda_stream(0);
		s = made_on_side(backing, 3);
		ends_now();
		cuda_finish(0);
		ok(cow_storage_export(s, COW_SHARE_ALIAS, &fd, &offset));
		close(fd);
		cuda_check(s, 3);
		cow_storage_unref(s);
		end();
	}
}
END_TEST

/* What the stream had to do comes before what is done with a clone that was made later. */
START_TEST(clones_come_behind_a_stream_that_ended)
{
	struct cow_storage *s, *c;

	for (uint32_t backing = COW_CUDA_CACHED; backing <= COW_CUDA_PIECES; backing++) {
		begin();
		s = made_on_side(backing, 9);
		cuda_finish(0);
		ref.set(REF_HOLD, 1);
		cuda_fill(s, 1, side);
		ends_now();
		c = lazy(s);
		(void)mut(c);
		ok(cow_cuda_stream_wait(0, NULL));
		cuda_check(c, 1);
		cow_storage_unref(c);
		cow_storage_unref(s);
		end();
	}
}
END_TEST

/* Marks that are no longer waited for are used again. */
START_TEST(marks_of_streams_that_ended_are_not_lost)
{
	struct ref_usage before = { .events = 0 }, after;

	for (int round = 0; round < 4; round++) {
		struct cow_storage *s, *c;

		begin();
		s = cuda_storage(0, MIB, COW_CUDA_CACHED);
		ok(cow_cuda_stream_set(0, side));
		c = lazy(s);
		ok(cow_cuda_stream_set(0, NULL));
		ends_now();
		cow_storage_unref(c);
		cow_storage_unref(s);
		end();
		if (round == 1)
			ref.usage(&before);
	}
	ref.usage(&after);
	ck_assert_uint_eq(after.events, before.events);
}
END_TEST

/* ---- It stays ------------------------------------------------------------------------ */

static void is_kept(void)
{
	must(ref.fail_call("cuStreamDestroy", 1, UNKNOWN) == 0);
	refuses(cow_cuda_stream_free(0, side));
	must(ref.fail_call("cuStreamDestroy", 0, 0) == 0);
}

/* Memory that it was recorded for is not handed on before work that came later. */
START_TEST(a_kept_stream_keeps_its_memory)
{
	struct cow_storage *s, *t;
	const void *at;

	begin();
	s = cuda_storage(0, MIB, COW_CUDA_CACHED);
	at = data(s);
	ok(cow_cuda_record_stream(s, side));
	is_kept();
	cuda_finish(0);
	ref.set(REF_HOLD, 1);
	cuda_fill(s, 1, side);
	cow_storage_unref(s);
	t = cuda_storage(0, MIB, COW_CUDA_CACHED);
	must(data(t) != at);
	cow_storage_unref(t);
	ends_now();
	end();
}
END_TEST

/* And clones of what it writes come behind that. */
START_TEST(a_kept_stream_is_waited_for)
{
	struct cow_storage *s, *c;

	for (uint32_t backing = COW_CUDA_SINGLE; backing <= COW_CUDA_PIECES; backing++) {
		begin();
		s = made_on_side(backing, 9);
		c = lazy(s);
		cow_storage_unref(c);
		is_kept();
		cuda_finish(0);
		ref.set(REF_HOLD, 1);
		cuda_fill(s, 7, side);
		c = lazy(s);
		(void)mut(c);
		ok(cow_cuda_stream_wait(0, NULL));
		cuda_check(c, 7);
		cow_storage_unref(c);
		cow_storage_unref(s);
		ends_now();
		end();
	}
}
END_TEST

static struct gate has_it, go_on;

static void *has_it_current(void *arg)
{
	ok(cow_cuda_stream_set(0, side));
	gate_open(&has_it);
	gate_wait(&go_on);
	return arg;
}

/* It may record later, which is asked before a device is waited for. */
START_TEST(a_kept_stream_is_asked)
{
	pthread_t t;

	begin();
	gate_make(&has_it);
	gate_make(&go_on);
	must(pthread_create(&t, NULL, has_it_current, NULL) == 0);
	gate_wait(&has_it);
	is_kept();
	cow_storage_unref(cuda_storage(0, MIB, COW_CUDA_CACHED));
	capture_begin(side, COW_CU_CAPTURE_GLOBAL);
	fails(-EBUSY, cow_cuda_empty_cache(0));
	capture_end(side);
	gate_open(&go_on);
	must(pthread_join(t, NULL) == 0);
	gate_free(&has_it);
	gate_free(&go_on);
	ends_now();
	end();
}
END_TEST

/* If a mark can't be made, the stream is not ended: whether its uses have passed could not be
 * known. */
START_TEST(without_a_mark_it_stays)
{
	static const char *const names[] = { "cuEventCreate", "cuEventRecord" };

	for (size_t i = 0; i < COUNT(names); i++)
		for (unsigned long n = 1, hit = 1; hit; n++) {
			struct cow_storage *s, *t;
			uint64_t before;
			int r;

			begin();
			s = cuda_storage(0, 2 * PIECE, COW_CUDA_PIECES);
			t = cuda_storage(0, 2 * PIECE, COW_CUDA_PIECES);
			ok(cow_cuda_record_stream(s, side));
			ok(cow_cuda_record_stream(t, side));
			before = ref.calls(names[i]);
			must(ref.fail_call(names[i], n, UNKNOWN) == 0);
			r = cow_cuda_stream_free(0, side);
			hit = ref.calls(names[i]) - before >= n;
			must(ref.fail_call(names[i], 0, 0) == 0);
			must((r < 0) == (hit != 0));
			if (r < 0) {
				cu_ok(cu->stream_synchronize(side));
				ends_now();
			}
			cow_storage_unref(s);
			cow_storage_unref(t);
			end();
		}
}
END_TEST

/* ---- In the middle of something -------------------------------------------------------- */

static enum cow__cu_result (*real_record)(struct cow__cu_event *, struct cow__cu_stream *);
static enum cow__cu_result (*real_capturing)(struct cow__cu_stream *, unsigned *);

static enum cow__cu_result record(struct cow__cu_event *event, struct cow__cu_stream *stream)
{
	meanwhile_begin(ends_now);
	return real_record(event, stream);
}

static enum cow__cu_result capturing(struct cow__cu_stream *stream, unsigned *ret)
{
	if (stream == side)
		meanwhile_begin(ends_now);
	return real_capturing(stream, ret);
}

/* It ends while what was freed gets its marks: of another stream first, then of it. */
START_TEST(ends_while_memory_leaves)
{
	cow_cuda_stream other;
	struct cow_storage *s;

	begin();
	other = cuda_stream(0);
	s = cuda_storage(0, 2 * PIECE, COW_CUDA_PIECES);
	ok(cow_cuda_record_stream(s, side));
	ok(cow_cuda_record_stream(s, other));
	real_record = cu->event_record;
	meanwhile_table()->event_record = record;
	cow_storage_unref(s);
	meanwhile_end();
	meanwhile_table()->event_record = real_record;
	ok(cow_cuda_stream_free(0, other));
	end();
}
END_TEST

/* It ends while a writer is about to wait for it. */
START_TEST(ends_while_a_writer_comes_behind)
{
	struct cow_storage *s;

	begin();
	s = cuda_storage(0, 2 * PIECE, COW_CUDA_PIECES);
	cow_storage_unref(lazy(s));
	ok(cow_cuda_record_stream(s, side));
	real_capturing = cu->stream_is_capturing;
	meanwhile_table()->stream_is_capturing = capturing;
	(void)mut(s);
	meanwhile_end();
	meanwhile_table()->stream_is_capturing = real_capturing;
	cow_storage_unref(s);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_ends");
	TCase *c = add_case(suite, "ends");

	driver_choose();
	tcase_add_test(c, memory_outlives_its_stream);
	tcase_add_test(c, clones_come_behind_a_stream_that_ended);
	add_test_needing(NEEDS_CONTROL, c, marks_of_streams_that_ended_are_not_lost);
	add_test_needing(NEEDS_CONTROL, c, a_kept_stream_keeps_its_memory);
	add_test_needing(NEEDS_CONTROL, c, a_kept_stream_is_waited_for);
	add_test_needing(NEEDS_CONTROL, c, a_kept_stream_is_asked);
	add_test_needing(NEEDS_CONTROL, c, without_a_mark_it_stays);
	tcase_add_test(c, ends_while_memory_leaves);
	tcase_add_test(c, ends_while_a_writer_comes_behind);
	return run_suite(suite);
}
