/* SPDX-License-Identifier: MIT */
/*
 * Device storages between processes, on the reference driver
 *
 * Each process starts the driver after it was forked.
 */
#include "tests/support/gpu.h"

#include <cowshed-share.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (2 * MIB)

static bool grouped;

static void send_one(int socket, struct cow_storage *s, enum cow_share_mode mode)
{
	struct cow_parcel p = { .storage = s, .length = cow_storage_bytes(s), .mode = mode };
	struct cow_group *g = NULL;
	struct cow_channel *c;

	if (grouped)
		ok(cow_group_new(&g));
	ok(cow_channel_new(socket, g, 0, &c));
	(void)cow_group_unref(g);
	if (cow_channel_send(c, &p, 1, "note", 5) != 1)
		ck_abort_msg("send: %s", cow_last_error());
	(void)cow_channel_free(c);
}

static struct cow_storage *receive_on(struct cow_channel *c)
{
	char note[8];
	size_t bytes;
	struct cow_parcel p;

	if (cow_channel_receive(c, &p, 1, note, sizeof(note), &bytes) != 1)
		ck_abort_msg("receive: %s", cow_last_error());
	must(bytes == 5 && strcmp(note, "note") == 0);
	must(cow_storage_device(p.storage).type == COW_DEVICE_CUDA);
	return p.storage;
}

static struct cow_storage *receive_one(int socket)
{
	struct cow_storage *s;
	struct cow_channel *c;

	ok(cow_channel_new(socket, NULL, COW_CHANNEL_JOIN | COW_CHANNEL_TAKE_ALIASES, &c));
	s = receive_on(c);
	(void)cow_channel_free(c);
	return s;
}

/* ---- Two processes ---------------------------------------------------------------- */

struct two {
	int socket[2];
	struct gate there, back;
	enum cow_share_mode mode;
	size_t bytes, piece;
};

static void two_make(struct two *t)
{
	/* Packets and streams take turns. */
	static int turn;
	int type = turn++ % 2 ? SOCK_SEQPACKET : SOCK_STREAM;

	must(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, t->socket) == 0);
	gate_make(&t->there);
	gate_make(&t->back);
}

static void both(struct two *t, child_fn *sender, child_fn *receiver)
{
	pid_t a, b;

	two_make(t);
	a = child_start(sender, t);
	b = child_start(receiver, t);
	child_finish(a);
	child_finish(b);
	gate_free(&t->there);
	gate_free(&t->back);
	close(t->socket[0]);
	close(t->socket[1]);
}

/* The fill is 30 ms late, so the receiver would come before it; no call waits here. */
static void sends_and_looks(void *arg)
{
	struct two *t = arg;
	struct cow_storage *s;
	uint64_t waits;

	gpu_start();
	ref.set(REF_DELAY_US, 60000);
	s = gpu_new(t->bytes, t->piece, 1);
	waits = gpu_waits();
	send_one(t->socket[0], s, t->mode);
	must(gpu_waits() == waits);
	ref.set(REF_DELAY_US, 100);
	gate_wait(&t->back);
	/* The receiver wrote 2 from byte 5 on. */
	if (t->mode == COW_SHARE_ALIAS)
		must(gpu_is(s, 0, 5, 1) && gpu_is(s, 5, t->bytes - 5, 2));
	else
		must(gpu_is(s, 0, t->bytes, 1));
	gpu_fill(s, 0, 3, 3);
	must(gpu_is(s, 0, 3, 3));
	gate_open(&t->there);
	gate_wait(&t->back);
	(void)cow_storage_unref(s);
}

static void receives_and_writes(void *arg)
{
	struct two *t = arg;
	struct cow_storage *s;

	gpu_start();
	s = receive_one(t->socket[1]);
	must(cow_storage_bytes(s) == t->bytes);
	must(gpu_is(s, 0, t->bytes, 1));
	gpu_fill(s, 5, t->bytes - 5, 2);
	must(gpu_is(s, 5, t->bytes - 5, 2));
	gate_open(&t->back);
	gate_wait(&t->there);
	must(gpu_is(s, 0, 3, t->mode == COW_SHARE_ALIAS ? 3 : 1));
	must(gpu_is(s, 3, 2, 1) && gpu_is(s, 5, t->bytes - 5, 2));
	gate_open(&t->back);
	(void)cow_storage_unref(s);
}

static const struct {
	size_t bytes, piece;
} shapes[] = { { 100, 0 }, { 3 * PIECE, 0 }, { 3 * PIECE - 7, PIECE },
	       { 7 * PIECE + 1, 2 * PIECE },
	       { 100, GPU_CACHED }, { 3 * MIB, GPU_CACHED } };

START_TEST(each_side_sees_what_it_should)
{
	struct two t = { .bytes = shapes[_i].bytes, .piece = shapes[_i].piece };

	for (int how = 0; how < 4; how++) {
		t.mode = (enum cow_share_mode)(how % 2);
		grouped = how / 2;
		both(&t, sends_and_looks, receives_and_writes);
	}
}
END_TEST

static void sends_and_goes(void *arg)
{
	struct two *t = arg;
	struct cow_storage *s;

	gpu_start();
	s = gpu_new(t->bytes, t->piece, 1);
	send_one(t->socket[0], s, t->mode);
	/* Work ends with its process. */
	cu_ok(cu->ctx_synchronize());
	(void)cow_storage_unref(s);
	gate_open(&t->there);
}

static void receives_late(void *arg)
{
	struct two *t = arg;
	struct cow_storage *s;

	gate_wait(&t->there);
	gpu_start();
	s = receive_one(t->socket[1]);
	must(gpu_is(s, 0, PIECE, 1) && gpu_is(s, t->bytes - PIECE, PIECE, 1));
	gpu_fill(s, PIECE - 1, 2, 2);
	must(gpu_is(s, PIECE - 1, 2, 2) && gpu_is(s, PIECE + 1, PIECE, 1));
	(void)cow_storage_unref(s);
}

/* Three packets of descriptors in the queue that is sent. */
START_TEST(sender_goes_at_once)
{
	struct two t = { .bytes = 4 * PIECE, .piece = PIECE };

	for (int mode = COW_SHARE_ALIAS; mode <= COW_SHARE_CLONE; mode++) {
		t.mode = (enum cow_share_mode)mode;
		both(&t, sends_and_goes, receives_late);
	}
}
END_TEST

static void few_from_many(void *arg)
{
	struct two *t = arg;
	struct cow_storage *s;
	size_t before;

	driver_start();
	ref.set(REF_MEMORY, 4 * (long)GIB);
	ref.set(REF_MAX_HANDLES, 2000);
	gpu_start();
	s = receive_one(t->socket[1]);
	must(info_of(s).mappings == 600);
	before = gpu_usage().bytes;
	gpu_fill(s, 300 * PIECE, 1, 2);
	must(gpu_usage().bytes == before + PIECE);
	must(gpu_is(s, 300 * PIECE, 1, 2) && gpu_is(s, 0, 1, 7));
	must(gpu_is(s, 600 * PIECE - 1, 1, 9));
	(void)cow_storage_unref(s);
}

static void sends_many(void *arg)
{
	struct cow_cuda_options o = { .size = sizeof(o), .backing = COW_CUDA_PIECES };
	struct two *t = arg;
	struct cow_storage *s;

	driver_start();
	ref.set(REF_MEMORY, 4 * (long)GIB);
	ref.set(REF_MAX_HANDLES, 2000);
	gpu_start();
	ok(cow_cuda_storage_new(0, 600 * PIECE, &o, &s));
	gpu_fill(s, 0, 1, 7);
	gpu_fill(s, 600 * PIECE - 1, 1, 9);
	send_one(t->socket[0], s, t->mode);
	cu_ok(cu->ctx_synchronize());
	(void)cow_storage_unref(s);
}

START_TEST(many_pieces)
{
	struct two t = { .mode = COW_SHARE_CLONE };

	grouped = true;
	both(&t, sends_many, few_from_many);
}
END_TEST

/* ---- The same one ------------------------------------------------------------------- */

static void sends_three_times(void *arg)
{
	struct two *t = arg;
	struct cow_storage *s, *e;

	gpu_start();
	s = gpu_new(t->bytes, t->piece, 1);
	cu_ok(cu->ctx_synchronize());
	send_one(t->socket[0], s, COW_SHARE_ALIAS);
	/* Clones of it are copies from now on. (The peer writes it when it has all.) */
	e = lazy(s);
	must(data(e) != data(s));
	cu_ok(cu->ctx_synchronize());
	send_one(t->socket[0], s, COW_SHARE_ALIAS);
	send_one(t->socket[0], s, COW_SHARE_CLONE);
	gate_wait(&t->back);
	must(gpu_is(s, 0, t->bytes, 2) && gpu_is(e, 0, t->bytes, 1));
	(void)cow_storage_unref(s);
	(void)cow_storage_unref(e);
}

static void one_and_a_clone(void *arg)
{
	struct two *t = arg;
	struct cow_storage *a, *b, *c;
	struct cow_channel *channel;

	gpu_start();
	ok(cow_channel_new(t->socket[1], NULL, COW_CHANNEL_TAKE_ALIASES, &channel));
	a = receive_on(channel);
	b = receive_on(channel);
	c = receive_on(channel);
	must(a == b && cow_storage_use_count(a) == 2 && c != a);
	gpu_fill(a, 0, t->bytes, 2);
	must(gpu_is(c, 0, t->bytes, 1) && gpu_is(b, 0, t->bytes, 2));
	gate_open(&t->back);
	(void)cow_storage_unref(a);
	(void)cow_storage_unref(b);
	(void)cow_storage_unref(c);
	(void)cow_channel_free(channel);
}

START_TEST(received_twice_is_one)
{
	struct two t = { .bytes = 2 * PIECE, .piece = PIECE };

	both(&t, sends_three_times, one_and_a_clone);
}
END_TEST

/* ---- Three processes ------------------------------------------------------------------ */

struct three {
	struct two first, second;
};

static void hands_on(void *arg)
{
	struct three *t = arg;
	struct cow_storage *s;

	gpu_start();
	s = receive_one(t->first.socket[1]);
	gpu_fill(s, 1, 1, 2);
	send_one(t->second.socket[0], s, t->first.mode);
	/* A clone is this process's own from here on, too. */
	if (t->first.mode == COW_SHARE_CLONE)
		gpu_fill(s, 0, PIECE, 5);
	cu_ok(cu->ctx_synchronize());
	(void)cow_storage_unref(s);
}

static void last_of_three(void *arg)
{
	struct three *t = arg;
	struct cow_storage *s;

	gpu_start();
	s = receive_one(t->second.socket[1]);
	must(gpu_is(s, 0, 1, 1) && gpu_is(s, 1, 1, 2) && gpu_is(s, 2, 2 * PIECE - 2, 1));
	(void)cow_storage_unref(s);
}

START_TEST(sent_on)
{
	struct three t;

	for (int mode = COW_SHARE_ALIAS; mode <= COW_SHARE_CLONE; mode++) {
		t.first = (struct two){ .mode = (enum cow_share_mode)mode,
			                .bytes = 2 * PIECE, .piece = PIECE };
		two_make(&t.first);
		two_make(&t.second);
		in_child(sends_and_goes, &t.first);
		in_child(hands_on, &t);
		in_child(last_of_three, &t);
		for (int i = 0; i < 2; i++) {
			close(t.first.socket[i]);
			close(t.second.socket[i]);
		}
		gate_free(&t.first.there);
		gate_free(&t.first.back);
		gate_free(&t.second.there);
		gate_free(&t.second.back);
	}
}
END_TEST

/* ---- Nobody there ---------------------------------------------------------------------- */

static void has_no_device(void *arg)
{
	struct two *t = arg;
	struct cow_channel *c;
	struct cow_parcel p;

	ok(cow_channel_new(t->socket[1], NULL, COW_CHANNEL_TAKE_ALIASES, &c));
	fails(-ENODEV, (int)cow_channel_receive(c, &p, 1, NULL, 0, NULL));
	(void)cow_channel_free(c);
}

START_TEST(a_process_without_devices)
{
	struct two t = { .bytes = PIECE, .mode = COW_SHARE_CLONE };

	both(&t, sends_and_goes, has_no_device);
}
END_TEST

/* Processes send and write clones in both directions, without knowing of each other's. The
 * bytes are compared with arrays. */
enum { TURNS = 24, CELLS = 4 };

static void pingpong(int socket, bool first, uint64_t seed)
{
	struct prng r = prng_make(seed);
	unsigned char mine[CELLS] = { 0 }, kept[CELLS];
	struct cow_storage *s = NULL, *k;
	struct cow_group *g = NULL;
	struct cow_channel *c;
	char note[CELLS];

	gpu_start();
	if (first)
		ok(cow_group_new(&g));
	/* Members share the pieces; others would get copies. */
	ok(cow_channel_new(socket, g, first ? 0 : COW_CHANNEL_JOIN, &c));
	if (first)
		s = gpu_new(CELLS * PIECE, PIECE, 0);
	for (int n = 0; n < TURNS; n++) {
		struct cow_parcel p = { .length = CELLS * PIECE, .mode = COW_SHARE_CLONE };
		size_t i = prng_below(&r, CELLS);

		if (first == (n % 2 == 1)) {
			must(cow_channel_receive(c, &p, 1, note, CELLS, NULL) == 1);
			if (s)
				(void)cow_storage_unref(s);
			s = p.storage;
			memcpy(mine, note, CELLS);
		}
		k = lazy(s);
		memcpy(kept, mine, CELLS);
		mine[i] = (unsigned char)(1 + prng_below(&r, 255));
		gpu_fill(s, i * PIECE, PIECE, mine[i]);
		for (size_t j = 0; j < CELLS; j++)
			must(gpu_is(s, j * PIECE, PIECE, mine[j]) &&
			     gpu_is(k, j * PIECE, PIECE, kept[j]));
		if (first == (n % 2 == 0)) {
			p.storage = s;
			must(cow_channel_send(c, &p, 1, mine, CELLS) == 1);
		}
		(void)cow_storage_unref(k);
	}
	(void)cow_storage_unref(s);
	(void)cow_channel_free(c);
	(void)cow_group_unref(g);
}

static void ping(void *arg)
{
	pingpong(((struct two *)arg)->socket[0], true, 7);
}

static void pong(void *arg)
{
	pingpong(((struct two *)arg)->socket[1], false, 8);
}

START_TEST(clones_to_and_fro)
{
	struct two t;

	both(&t, ping, pong);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_share");
	TCase *t = add_case(s, "share");

	driver_choose();
	tcase_add_loop_test(t, each_side_sees_what_it_should, 0, COUNT(shapes));
	tcase_add_test(t, sender_goes_at_once);
	tcase_add_test(t, many_pieces);
	tcase_add_test(t, received_twice_is_one);
	tcase_add_test(t, sent_on);
	tcase_add_test(t, a_process_without_devices);
	tcase_add_test(t, clones_to_and_fro);
	return run_suite(s);
}
