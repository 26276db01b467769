/* SPDX-License-Identifier: MIT */
/*
 * Lazy clones of device storages, on the reference driver
 *
 * These tests check what a write copies, when it goes in place, and that streams which run
 * late change none of it. The library waits for no stream on the host.
 */
#include "tests/support/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (2 * MIB)

static void set_stream(cow_cuda_stream s)
{
	ok(cow_cuda_stream_set(0, s));
}

START_TEST(a_write_copies_the_pieces_it_touches)
{
	struct cow_storage *s, *c;
	size_t before;
	uint64_t waits;

	gpu_start();
	s = gpu_new(4 * PIECE, PIECE, 1);
	before = gpu_usage().bytes;
	waits = gpu_waits();
	c = lazy(s);
	must(state_of(c) == COW_STATE_LAZY && data(c) == data(s));
	gpu_fill(c, PIECE + 100, 1000, 2);
	must(gpu_waits() == waits);
	must(gpu_usage().bytes == before + PIECE);
	must(data(c) != data(s));
	must(state_of(c) == COW_STATE_VIEW && info_of(c).bytes_own == PIECE);
	must(gpu_is(s, 0, 4 * PIECE, 1));
	must(gpu_is(c, 0, PIECE + 100, 1) && gpu_is(c, PIECE + 100, 1000, 2));
	must(gpu_is(c, PIECE + 1100, 3 * PIECE - 1100, 1));
	/* The pieces that it copied are its own. */
	waits = gpu_waits();
	before = gpu_usage().bytes;
	gpu_fill(c, PIECE, PIECE, 3);
	must(gpu_usage().bytes == before && gpu_waits() == waits);
	/* The source shares the others still; that one it has alone. */
	gpu_fill(s, PIECE, PIECE, 4);
	must(gpu_usage().bytes == before);
	gpu_fill(s, 0, 1, 4);
	must(gpu_usage().bytes == before + PIECE);
	must(gpu_is(c, 0, PIECE, 1) && gpu_is(c, PIECE, PIECE, 3));
	must(gpu_is(s, 0, 1, 4) && gpu_is(s, 1, PIECE - 1, 1) && gpu_is(s, PIECE, PIECE, 4));
	(void)cow_storage_unref(s);
	(void)cow_storage_unref(c);
}
END_TEST

START_TEST(the_last_one_writes_in_place)
{
	struct cow_storage *s, *c;
	const void *at;
	size_t before;

	gpu_start();
	for (size_t piece = 0; piece <= PIECE; piece += PIECE) {
		s = gpu_new(2 * PIECE, piece, 1);
		at = data(s);
		before = gpu_usage().bytes;
		c = lazy(s);
		(void)cow_storage_unref(s);
		gpu_fill(c, 0, 2 * PIECE, 2);
		must(data(c) == at && gpu_usage().bytes == before);
		must(gpu_is(c, 0, 2 * PIECE, 2));
		(void)cow_storage_unref(c);
	}
}
END_TEST

START_TEST(one_piece_is_copied_whole)
{
	struct cow_storage *s, *c;
	size_t before;

	gpu_start();
	s = gpu_new(2 * PIECE + 5, 0, 1);
	must(info_of(s).mappings == 1);
	before = gpu_usage().bytes;
	c = lazy(s);
	gpu_fill(c, 5, 1, 2);
	must(gpu_usage().bytes == before + 3 * PIECE);
	must(state_of(c) == COW_STATE_OWNED && state_of(s) == COW_STATE_OWNED);
	must(gpu_is(c, 0, 5, 1) && gpu_is(c, 5, 1, 2) && gpu_is(c, 6, 2 * PIECE - 1, 1));
	must(gpu_is(s, 0, 2 * PIECE + 5, 1));
	(void)cow_storage_unref(s);
	(void)cow_storage_unref(c);
}
END_TEST

/* The fill of one stream is late; only the library orders the streams. */
START_TEST(a_writer_on_another_stream_comes_behind)
{
	cow_cuda_stream a, b;
	uint64_t waits;

	gpu_start();
	a = gpu_stream();
	b = gpu_stream();
	ref.set(REF_HOLD, 1);
	for (int steal = 0; steal < 2; steal++) {
		struct cow_storage *s, *c;

		set_stream(a);
		waits = gpu_waits();
		s = gpu_new(2 * PIECE, PIECE, 1);
		c = lazy(s);
		if (steal)
			(void)cow_storage_unref(s);
		set_stream(b);
		gpu_fill(c, 0, 1, 2);
		must(gpu_waits() == waits);
		must(gpu_is(c, 0, 1, 2) && gpu_is(c, 1, PIECE, 1));
		if (!steal) {
			set_stream(a);
			must(gpu_is(s, 0, 2 * PIECE, 1));
			(void)cow_storage_unref(s);
		}
		(void)cow_storage_unref(c);
	}
	set_stream(NULL);
	gpu_stream_end(a);
	gpu_stream_end(b);
}
END_TEST

/* A clone's copy on `b` is late; the source is written in place on `a` meanwhile. */
START_TEST(who_takes_over_waits_for_copies)
{
	struct cow_storage *s, *c;
	cow_cuda_stream a, b;
	const void *at;
	uint64_t waits;

	gpu_start();
	a = gpu_stream();
	b = gpu_stream();
	ref.set(REF_HOLD, 1);
	set_stream(a);
	s = gpu_new(2 * PIECE, 0, 1);
	at = data(s);
	c = lazy(s);
	waits = gpu_waits();
	set_stream(b);
	gpu_fill(c, 0, 1, 2);
	set_stream(a);
	gpu_fill(s, 0, 2 * PIECE, 3);
	must(data(s) == at && gpu_waits() == waits);
	must(gpu_is(s, 0, 2 * PIECE, 3));
	set_stream(b);
	must(gpu_is(c, 0, 1, 2) && gpu_is(c, 1, 2 * PIECE - 1, 1));
	set_stream(NULL);
	(void)cow_storage_unref(s);
	(void)cow_storage_unref(c);
	gpu_stream_end(a);
	gpu_stream_end(b);
}
END_TEST

/* The driver ends a program that unmaps what work still uses. */
START_TEST(memory_goes_when_the_work_is_done)
{
	struct cow_storage *s, *t;
	struct ref_usage before, after;
	cow_cuda_stream b;

	gpu_start();
	b = gpu_stream();
	before = gpu_usage();
	ref.set(REF_HOLD, 1);
	s = gpu_new(2 * PIECE, PIECE, 1);
	ok(cow_cuda_record_stream(s, b));
	cu_ok(cu->set_8((uintptr_t)data(s), 7, PIECE, b));
	(void)cow_storage_unref(s);
	must(gpu_usage().bytes == before.bytes + 2 * PIECE);
	cu_ok(cu->stream_synchronize(NULL));
	t = gpu_new(1, 0, 1);
	must(gpu_usage().bytes == before.bytes + 3 * PIECE);
	cu_ok(cu->stream_synchronize(b));
	cu_ok(cu->stream_synchronize(NULL));
	(void)cow_storage_unref(t);
	cu_ok(cu->ctx_synchronize());
	ok(cow_cuda_empty_cache(0));
	after = gpu_usage();
	must(after.bytes == before.bytes && after.mappings == before.mappings);
	gpu_stream_end(b);
}
END_TEST

START_TEST(recording_a_graph)
{
	struct cow_storage *s, *c, *e;
	cow_cuda_stream a;
	void *p;

	gpu_start();
	a = gpu_stream();
	set_stream(a);
	s = gpu_new(PIECE, PIECE, 1);
	c = lazy(s);
	capture_begin(a, COW_CU_CAPTURE_GLOBAL);
	fails(-EBUSY, cow_storage_data_mut(c, &p));
	must(state_of(c) == COW_STATE_LAZY && refs_of(c) == 1);
	/* Taking over is allowed. */
	(void)cow_storage_unref(s);
	ok(cow_storage_data_mut(c, &p));
	e = lazy(c);
	capture_end(a);
	fails(-EBUSY, cow_storage_data_mut(e, &p));
	(void)cow_storage_unref(c);
	ok(cow_storage_data_mut(e, &p));
	(void)cow_storage_unref(e);
	set_stream(NULL);
	gpu_stream_end(a);
}
END_TEST

static void inherited(void *arg)
{
	struct cow_storage **s = arg, *c;
	void *p;

	fails(-ECHILD, cow_storage_data_mut(s[0], &p));
	fails(-ECHILD, cow_storage_data_mut(s[1], &p));
	fails(-ECHILD, cow_storage_lazy_clone(s[0], &c));
	refuses(cow_storage_clone(s[0], &c));
	fails(-ECHILD, cow_cuda_record_stream(s[0], NULL));
	fails(-ECHILD, cow_cuda_storage_new(0, 1, NULL, &c));
	(void)cow_storage_unref(s[0]);
	(void)cow_storage_unref(s[1]);
	(void)cow_storage_unref(s[2]);
}

START_TEST(a_child_can_free_and_nothing_else)
{
	struct cow_storage *s[3];
	pid_t raw;

	gpu_start();
	s[0] = gpu_new(2 * PIECE, PIECE, 1);
	s[1] = lazy(s[0]);
	gpu_fill(s[1], 0, 1, 2);
	s[2] = gpu_new(PIECE, 0, 3);
	ref.set(REF_HOLD, 1);
	in_child(inherited, s);
	/* No handler runs before these; without the shim such a child is not the
	 * engine's (cowshed.h), but the driver is not called either. */
	raw = _Fork();
	if (raw == 0) {
		void *p;

		_exit(cow_storage_data_mut(s[0], &p) == -ECHILD ? 0 : 1);
	}
	child_finish(raw);
	raw = vfork();
	if (raw == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	must(raw > 0 && child_status(raw) == 0);
	must(gpu_is(s[0], 0, 2 * PIECE, 1) && gpu_is(s[1], 0, 1, 2));
	must(gpu_is(s[2], 0, PIECE, 3));
	gpu_fill(s[0], 0, PIECE, 4);
	must(gpu_is(s[0], 0, PIECE, 4) && gpu_is(s[1], 1, PIECE - 1, 1));
	for (int i = 0; i < 3; i++)
		(void)cow_storage_unref(s[i]);
}
END_TEST

/* ---- Against arrays ------------------------------------------------------------ */

enum { STORAGES = 6, STREAMS = 3, CELLS = 8 };

struct model {
	struct cow_storage *s[STORAGES];
	unsigned char cells[STORAGES][CELLS]; /* each half a piece */
};

static void compare(struct model *m, int i)
{
	for (size_t c = 0; c < CELLS; c++)
		if (!gpu_is(m->s[i], c * PIECE / 2, PIECE / 2, m->cells[i][c]))
			ck_abort_msg("storage %d, cell %zu", i, c);
}

/* Each step may be on another stream, which is ordered behind the last one by the
 * program, as it must for reads; what is shared below is the library's matter. */
static void step(struct model *m, struct prng *r, cow_cuda_stream *streams)
{
	int i = (int)prng_below(r, STORAGES), j = (int)prng_below(r, STORAGES);
	cow_cuda_stream last, next = streams[prng_below(r, STREAMS)];
	size_t c = prng_below(r, CELLS), n = 1 + prng_below(r, CELLS - c);

	ok(cow_cuda_stream_get(0, &last));
	ok(cow_cuda_stream_after(0, next, last));
	ok(cow_cuda_stream_set(0, next));
	switch (prng_below(r, 6)) {
	case 0:
	case 1:
		if (i == j)
			break;
		(void)cow_storage_unref(m->s[i]);
		m->s[i] = lazy(m->s[j]);
		memcpy(m->cells[i], m->cells[j], CELLS);
		break;
	case 2:
		compare(m, i);
		break;
	default:
		memset(m->cells[i] + c, (int)prng_below(r, 256), n);
		gpu_fill(m->s[i], c * PIECE / 2, n * PIECE / 2, m->cells[i][c]);
	}
}

START_TEST(as_arrays)
{
	struct prng r = prng_make((uint64_t)_i + 1);
	cow_cuda_stream streams[STREAMS];
	struct model m;

	gpu_start();
	for (int i = 0; i < STREAMS; i++)
		streams[i] = gpu_stream();
	for (int i = 0; i < STORAGES; i++) {
		m.s[i] = gpu_new(CELLS * PIECE / 2, i % 3 ? PIECE * (size_t)(i % 3) : 0,
		                 (unsigned char)i);
		if (i == 3) { /* and one of the cache */
			(void)cow_storage_unref(m.s[i]);
			ok(cow_cuda_storage_new(0, CELLS * PIECE / 2, NULL, &m.s[i]));
			gpu_fill(m.s[i], 0, CELLS * PIECE / 2, (unsigned char)i);
		}
		memset(m.cells[i], i, CELLS);
	}
	for (int n = 0; n < ROUNDS(150); n++)
		step(&m, &r, streams);
	cu_ok(cu->ctx_synchronize());
	for (int i = 0; i < STORAGES; i++) {
		compare(&m, i);
		(void)cow_storage_unref(m.s[i]);
	}
	ok(cow_cuda_stream_set(0, NULL));
	cu_ok(cu->ctx_synchronize());
	ok(cow_cuda_empty_cache(0));
	must(gpu_usage().bytes == 0 && gpu_usage().mappings == 0);
	for (int i = 0; i < STREAMS; i++)
		gpu_stream_end(streams[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_clone");
	TCase *t = add_case(s, "clone");

	driver_choose();
	tcase_add_test(t, a_write_copies_the_pieces_it_touches);
	tcase_add_test(t, the_last_one_writes_in_place);
	tcase_add_test(t, one_piece_is_copied_whole);
	tcase_add_test(t, a_writer_on_another_stream_comes_behind);
	tcase_add_test(t, who_takes_over_waits_for_copies);
	add_test_needing(NEEDS_CONTROL, t, memory_goes_when_the_work_is_done);
	tcase_add_test(t, recording_a_graph);
	tcase_add_test(t, a_child_can_free_and_nothing_else);
	tcase_add_loop_test(t, as_arrays, 0, 8);
	return run_suite(s);
}
