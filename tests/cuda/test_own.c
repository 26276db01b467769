/* SPDX-License-Identifier: MIT */
/*
 * Device storages that come back to the process that sent them
 *
 * A received alias is the storage that is already there. Its receiver's stream still waits,
 * on the device, for what the sender queued before it sent. Here no work runs before a call
 * waits for it, so a stream that is not ordered sees the old bytes.
 */
#include "tests/support/cuda.h"
#include "tests/support/ends.h"
#include "tests/support/meanwhile.h"

#define PIECE (2 * MIB)

static struct ends ends;
static struct cow_channel *theirs;
static struct cow_storage *s;
static cow_cuda_stream a, b;

static enum cow__cu_result (*real_stream_query)(struct cow__cu_stream *);
static enum cow__cu_result (*real_event_query)(struct cow__cu_event *);

/* The driver may begin when it is asked: it is not. */
static enum cow__cu_result not_asked(struct cow__cu_stream *stream)
{
	(void)stream;
	return COW_CU_NOT_READY;
}

static void begin(void)
{
	cuda_start();
	real_stream_query = cu->stream_query;
	real_event_query = cu->event_query;
	meanwhile_table()->stream_query = not_asked;
	ends_make(&ends, SOCK_STREAM, true);
	ok(cow_channel_new(ends.fd[1], ends.group, COW_CHANNEL_TAKE_ALIASES, &theirs));
	a = cuda_stream(0);
	b = cuda_stream(0);
	ok(cow_cuda_stream_set(0, a));
	s = cuda_storage(0, 2 * PIECE, COW_CUDA_PIECES);
	cuda_fill(s, 1, a);
	cuda_finish(0);
}

static void end(void)
{
	ref.set(REF_HOLD, 0);
	meanwhile_table()->stream_query = real_stream_query;
	meanwhile_table()->event_query = real_event_query;
	cow_storage_unref(s);
	cow_channel_free(theirs);
	ends_free(&ends);
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_free(0, a));
	ok(cow_cuda_stream_free(0, b));
	cuda_finish(0);
	cuda_nothing_left();
}

/* The same storage, on stream b. */
static void comes_back(void)
{
	ok(cow_cuda_stream_set(0, b));
	must(receive_one(theirs) == s);
	cow_storage_unref(s);
	ok(cow_cuda_stream_set(0, NULL));
}

START_TEST(what_comes_back_is_ordered)
{
	begin();
	for (unsigned char round = 2; round < 4; round++) {
		ok(cow_cuda_stream_set(0, a));
		ref.set(REF_HOLD, 1);
		cuda_fill(s, round, a);
		send_one(ends.mine, s, COW_SHARE_ALIAS);
		comes_back();
		ok(cow_cuda_stream_wait(0, b));
		cuda_check(s, round);
		ref.set(REF_HOLD, 0);
		cuda_finish(0);
	}
	end();
}
END_TEST

/* The sender looks whether what it sent before has passed. */
static enum cow__cu_result query(struct cow__cu_event *event)
{
	(void)event;
	meanwhile_begin(comes_back);
	return COW_CU_NOT_READY;
}

START_TEST(what_comes_back_while_it_is_sent_again)
{
	begin();
	ref.set(REF_HOLD, 1);
	cuda_fill(s, 2, a);
	send_one(ends.mine, s, COW_SHARE_ALIAS);
	meanwhile_table()->event_query = query;
	send_one(ends.mine, s, COW_SHARE_ALIAS);
	meanwhile_end();
	ok(cow_cuda_stream_wait(0, b));
	cuda_check(s, 2);
	cow_storage_unref(receive_one(theirs));
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_own");
	TCase *c = add_case(suite, "own");

	driver_choose();
	tcase_add_test(c, what_comes_back_is_ordered);
	add_test_needing(NEEDS_CONTROL, c, what_comes_back_while_it_is_sent_again);
	return run_suite(suite);
}
