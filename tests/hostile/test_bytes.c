/* SPDX-License-Identifier: MIT */
/*
 * A hostile peer: bytes
 *
 * Wrong numbers in every field, halves of messages, empty messages, messages that come a byte
 * at a time. Each ends in an error of the contract. If the next message can be found, it
 * arrives.
 */
#include "tests/support/hostile.h"

#include <sched.h>

static const int types[] = { SOCK_STREAM, SOCK_SEQPACKET };

/* ---- Every field ------------------------------------------------------------ */

struct field {
	const char *name;
	size_t offset, width;
	bool framing; /* of a stream: where the next message begins is lost */
};

#define HEAD(f, framing)                                                       \
	{ #f, offsetof(struct raw, head.f),                                    \
	  sizeof(((struct raw *)0)->head.f), framing }
#define ITEM(f)                                                                \
	{ #f, offsetof(struct raw, items[1].f),                                \
	  sizeof(((struct raw *)0)->items[1].f), false }

static const struct field fields[] = {
	HEAD(magic, true), HEAD(version, true), HEAD(flags, false),
	HEAD(bytes, true), HEAD(items, false), HEAD(packs, false),
	HEAD(fds, false), HEAD(reserved, false), HEAD(inline_bytes, false),
	HEAD(note_bytes, false), HEAD(slot, false), HEAD(epoch, false),
	HEAD(group.a, false), ITEM(mode), ITEM(kind), ITEM(index), ITEM(page),
	ITEM(pages), ITEM(generation), ITEM(bytes), ITEM(file_offset),
	ITEM(offset), ITEM(length),
};

static const uint64_t values[] = {
	0, 1, 2, 3, 4, 7, 8, 63, 64, 255, 1023, 1025, 4096, 65535, 65536,
	UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 7, UINT64_MAX / 2,
	UINT64_MAX / 2 + 1, 0x8000, 0x7fff, 0x80, 0x7f, 0x80000000, 0x7fffffff,
	1ull << 40,
};

/* Does what came stay within what was sent? */
static void harmless(struct cow_parcel *p, long n)
{
	for (long i = 0; i < n; i++) {
		must(p[i].offset <= cow_storage_bytes(p[i].storage));
		must(p[i].length <=
		     cow_storage_bytes(p[i].storage) - p[i].offset);
		must(first_wrong(data(p[i].storage),
		                 cow_storage_bytes(p[i].storage), 99) <= 512);
		cow_storage_unref(p[i].storage);
	}
}

static void one_value(const struct field *f, uint64_t value, int type, bool own)
{
	struct raw m = raw_new();
	struct cow_parcel p[4];
	struct victim v;
	int fd = -1;
	long n;

	victim_make(&v, type);
	if (own) {
		fd = memfd_of(5000, SEALS_ALL);
		m = raw_own(fd, 5000, COW_SHARE_SEALED);
		m.items[1] = m.items[0];
		m.head.items = 2;
		m.nitems = 2;
		raw_size(&m);
	}
	memcpy((char *)&m + f->offset, &value, f->width);
	raw_put(v.theirs, &m);
	close(fd);
	v.fds = footprint_now().fds;
	n = take(&v, p, 4);
	if (n < 0 && n != -EBADMSG && n != -EACCES && n != -ESTALE &&
	    n != -EAGAIN)
		ck_abort_msg("%s = %#llx: %ld", f->name,
		             (unsigned long long)value, n);
	/* Half of a longer message: the rest may come. */
	if (n == -EAGAIN)
		must(f->framing);
	harmless(p, n);
	if (!f->framing || type == SOCK_SEQPACKET)
		calm(&v);
	victim_free(&v);
}

START_TEST(every_field_with_every_value)
{
	for (size_t i = 0; i < COUNT(values); i++) {
		one_value(&fields[_i], values[i], SOCK_STREAM, false);
		one_value(&fields[_i], values[i], SOCK_SEQPACKET, false);
		one_value(&fields[_i], values[i], SOCK_SEQPACKET, true);
	}
}
END_TEST

/* Once a stream is in disorder, each call says so, and none waits. */
START_TEST(stream_in_disorder_stays_so)
{
	struct raw m = raw_new();
	struct cow_parcel p;
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	m.head.magic++;
	raw_put(v.theirs, &m);
	for (int i = 0; i < 3; i++)
		fails(-EBADMSG, (int)take(&v, &p, 1));
	victim_free(&v);
}
END_TEST

START_TEST(random_bytes)
{
	struct prng prng = prng_make((uint64_t)_i + 1);
	unsigned char bytes[600];
	struct cow_parcel p[4];
	struct victim v;

	victim_make(&v, SOCK_SEQPACKET);
	for (int i = 0; i < ROUNDS(2000); i++) {
		struct raw m = raw_new();
		size_t n = raw_bytes(&m, bytes);
		long r;

		for (size_t k = prng_below(&prng, 6) + 1; k > 0; k--)
			bytes[prng_below(&prng, n)] =
			        (unsigned char)prng_next(&prng);
		if (prng_below(&prng, 4) == 0)
			n = prng_below(&prng, n) + 1;
		must(put(v.theirs, bytes, n, NULL, 0, 0) == (long)n);
		r = take(&v, p, 4);
		must(r >= 0 || r == -EBADMSG || r == -EACCES);
		harmless(p, r);
	}
	calm(&v);
	victim_free(&v);
}
END_TEST

/* ---- Lengths that lie ----------------------------------------------------------- */

/* A program has a buffer of COW_NOTE_MAX bytes and believes the length. */
START_TEST(note_longer_than_notes_are)
{
	static unsigned char bytes[sizeof(struct cow__wire_head) +
	                           COW_NOTE_MAX + 1];
	struct raw m = raw_new();
	struct victim v;

	victim_make(&v, types[_i]);
	m.head.items = 0;
	m.head.inline_bytes = 0;
	m.head.note_bytes = COW_NOTE_MAX + 1;
	m.head.bytes = sizeof(bytes);
	memcpy(bytes, &m.head, sizeof(m.head));
	ck_assert_int_eq(put(v.theirs, bytes, sizeof(bytes), NULL, 0, 0),
	                 sizeof(bytes));
	refused(&v, -EBADMSG);
	victim_free(&v);
}
END_TEST

START_TEST(message_of_nothing)
{
	struct raw m = raw_new();
	struct victim v;

	victim_make(&v, types[_i]);
	m.head.items = 0;
	m.head.inline_bytes = m.head.note_bytes = 0;
	m.nitems = m.nhere = m.nnote = 0;
	raw_size(&m);
	raw_put(v.theirs, &m);
	refused(&v, -EBADMSG);
	victim_free(&v);
}
END_TEST

START_TEST(packet_shorter_than_it_says)
{
	struct raw m = raw_new();
	unsigned char bytes[1024];
	size_t all = raw_bytes(&m, bytes);
	struct victim v;

	victim_make(&v, SOCK_SEQPACKET);
	for (size_t n = 1; n < all; n++) {
		must(put(v.theirs, bytes, n, NULL, 0, 0) == (long)n);
		refused(&v, -EBADMSG);
	}
	victim_free(&v);
}
END_TEST

START_TEST(packet_longer_than_it_says)
{
	static unsigned char bytes[100000];
	struct raw m = raw_new();
	size_t n = raw_bytes(&m, bytes);
	struct victim v;

	victim_make(&v, SOCK_SEQPACKET);
	must(put(v.theirs, bytes, n + 1, NULL, 0, 0) == (long)n + 1);
	refused(&v, -EBADMSG);
	/* Longer than any message. */
	must(put(v.theirs, bytes, sizeof(bytes), NULL, 0, 0) > 0);
	refused(&v, -EBADMSG);
	victim_free(&v);
}
END_TEST

/* An empty packet is not the end. */
START_TEST(packet_of_no_bytes)
{
	int fd = _i ? memfd_of(PAGE, SEALS_ALL) : -1;
	struct raw m = raw_new();
	struct cow_parcel p;
	struct victim v;

	victim_make(&v, SOCK_SEQPACKET);
	ck_assert_int_eq(put(v.theirs, "", 0, &fd, _i ? 1 : 0, 0), 0);
	refused(&v, -EBADMSG);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(put(v.theirs, "", 0, &fd, _i ? 1 : 0, 0), 0);
	for (int i = 0; i < 3; i++)
		fails(-EBADMSG, (int)take(&v, &p, 1));
	fails(-EAGAIN, (int)take(&v, &p, 1));
	/* A message behind an empty packet arrives, also when the peer has ended. */
	ck_assert_int_eq(put(v.theirs, "", 0, &fd, _i ? 1 : 0, 0), 0);
	raw_put(v.theirs, &m);
	close(v.theirs);
	v.theirs = -1;
	fails(-EBADMSG, (int)take(&v, &p, 1));
	ck_assert_int_eq(take(&v, &p, 1), 1);
	cow_storage_unref(p.storage);
	ck_assert_int_eq(take(&v, &p, 1), 1);
	cow_storage_unref(p.storage);
	fails(-EPIPE, (int)take(&v, &p, 1));
	if (_i)
		close(fd);
	victim_free(&v);
}
END_TEST

/* ---- Halves --------------------------------------------------------------------- */

/* Half a message, of every length, and the end. */
START_TEST(half_a_message_then_the_end)
{
	struct raw m = raw_new();
	unsigned char bytes[1024];
	size_t all = raw_bytes(&m, bytes);
	int fd = memfd_of(PAGE, SEALS_ALL);

	for (size_t n = 1; n < all; n++) {
		struct cow_parcel p;
		struct victim v;

		victim_make(&v, SOCK_STREAM);
		must(put(v.theirs, bytes, n, &fd, n % 2, 0) == (long)n);
		fails(-EAGAIN, (int)take(&v, &p, 1));
		fails(-EAGAIN, (int)take(&v, &p, 1));
		close(v.theirs);
		v.theirs = -1;
		fails(-EPIPE, (int)take(&v, &p, 1));
		fails(-EPIPE, (int)take(&v, &p, 1));
		ck_assert_int_eq(footprint_now().fds, v.fds - 1);
		victim_free(&v);
	}
	close(fd);
}
END_TEST

START_TEST(half_a_message_then_silence_then_the_rest)
{
	struct raw m = raw_new();
	unsigned char bytes[1024];
	size_t all = raw_bytes(&m, bytes);
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	for (size_t n = 1; n < all; n++) {
		struct cow_parcel p[2];

		must(put(v.theirs, bytes, n, NULL, 0, 0) == (long)n);
		fails(-EAGAIN, (int)take(&v, p, 2));
		must(put(v.theirs, bytes + n, all - n, NULL, 0, 0) > 0);
		ck_assert_int_eq(take(&v, p, 2), 2);
		cow_storage_unref(p[0].storage);
		cow_storage_unref(p[1].storage);
	}
	calm(&v);
	victim_free(&v);
}
END_TEST

/* A byte at a time; descriptors come with the first. */
START_TEST(slow_single_bytes)
{
	int fd = memfd_of(5000, SEALS_ALL);
	struct raw m = raw_own(fd, 5000, COW_SHARE_SEALED);
	unsigned char bytes[1024];
	size_t all = raw_bytes(&m, bytes);
	struct cow_parcel p;
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	for (size_t n = 0; n < all; n++) {
		fails(-EAGAIN, (int)take(&v, &p, 1));
		must(put(v.theirs, bytes + n, 1, &fd, n == 0, 0) == 1);
	}
	ck_assert_int_eq(take(&v, &p, 1), 1);
	ck_pattern(data(p.storage), PAGE, 5);
	cow_storage_unref(p.storage);
	calm(&v);
	close(fd);
	victim_free(&v);
}
END_TEST

struct slow {
	int fd;
	struct gate gate;
};

static void slow_writer(void *arg)
{
	struct slow *t = arg;
	struct raw m = raw_new();
	unsigned char bytes[1024];
	size_t all = raw_bytes(&m, bytes);

	for (size_t n = 0; n < all; n++) {
		must(put(t->fd, bytes + n, 1, NULL, 0, 0) == 1);
		sched_yield();
	}
	gate_wait(&t->gate);
}

/* A socket that blocks blocks until all is there, and never says -EAGAIN. */
START_TEST(slow_single_bytes_to_one_that_waits)
{
	struct cow_parcel p[2];
	struct victim v;
	struct slow t;
	pid_t child;

	gate_make(&t.gate);
	victim_make(&v, SOCK_STREAM);
	fcntl(v.mine, F_SETFL, 0);
	t.fd = v.theirs;
	child = child_start(slow_writer, &t);
	ck_assert_int_eq(take(&v, p, 2), 2);
	cow_storage_unref(p[0].storage);
	cow_storage_unref(p[1].storage);
	gate_open(&t.gate);
	child_finish(child);
	calm(&v);
	gate_free(&t.gate);
	victim_free(&v);
}
END_TEST

/* Bytes out of band are in no message. */
START_TEST(out_of_band)
{
	struct raw m = raw_new();
	unsigned char bytes[1024];
	size_t all = raw_bytes(&m, bytes);
	struct cow_parcel p[2];
	struct victim v;
	long r;

	victim_make(&v, SOCK_STREAM);
	must(put(v.theirs, bytes, (size_t)_i, NULL, 0, 0) == _i);
	if (put(v.theirs, "!", 1, NULL, 0, MSG_OOB) == 1) {
		must(put(v.theirs, bytes + _i, all - (size_t)_i, NULL, 0, 0) >
		     0);
		/* Reading stops before it, and goes on behind it. */
		r = take(&v, p, 2);
		for (int i = 0; r == -EAGAIN && i < 10; i++)
			r = take(&v, p, 2);
		ck_assert_int_eq(r, 2);
		cow_storage_unref(p[0].storage);
		cow_storage_unref(p[1].storage);
		calm(&v);
	}
	victim_free(&v);
}
END_TEST

/* ---- Ends -------------------------------------------------------------------------- */

/* The peer ends without having read what we sent: all that it sent arrives first. */
START_TEST(peer_goes_without_reading)
{
	struct cow_storage *s = new_filled(MIB, 0, 1);
	struct cow_parcel p = { .storage = s, .length = MIB,
		                .mode = COW_SHARE_CLONE };
	struct raw m = raw_new();
	struct cow_parcel q[2];
	struct victim v;

	victim_make(&v, types[_i]);
	ck_assert_int_eq(cow_channel_send(v.channel, &p, 1, NULL, 0), 1);
	raw_put(v.theirs, &m);
	close(v.theirs);
	v.theirs = -1;
	ck_assert_int_eq(take(&v, q, 2), 2);
	cow_storage_unref(q[0].storage);
	cow_storage_unref(q[1].storage);
	fails(-EPIPE, (int)take(&v, q, 2));
	fails(-EPIPE, (int)cow_channel_send(v.channel, &p, 1, NULL, 0));
	ck_pattern(data(s), MIB, 1);
	cow_storage_unref(s);
	victim_free(&v);
}
END_TEST

START_TEST(peer_shuts_one_direction)
{
	struct cow_storage *s = new_filled(300, 0, 1);
	struct cow_parcel p = { .storage = s, .length = 300,
		                .mode = COW_SHARE_CLONE };
	struct cow_parcel q;
	struct victim v;

	victim_make(&v, types[_i]);
	shutdown(v.theirs, SHUT_RD);
	fails(-EPIPE, (int)cow_channel_send(v.channel, &p, 1, NULL, 0));
	fails(-EPIPE, (int)cow_channel_flush(v.channel));
	calm(&v); /* the other one is as it was */
	shutdown(v.theirs, SHUT_WR);
	fails(-EPIPE, (int)take(&v, &q, 1));
	cow_storage_unref(s);
	victim_free(&v);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile_bytes");
	TCase *tcase = add_case(suite, "hostile_bytes");

	tcase_add_loop_test(tcase, every_field_with_every_value, 0,
	                    COUNT(fields));
	tcase_add_test(tcase, stream_in_disorder_stays_so);
	tcase_add_loop_test(tcase, random_bytes, 0, 3);
	tcase_add_loop_test(tcase, note_longer_than_notes_are, 0, 2);
	tcase_add_loop_test(tcase, message_of_nothing, 0, 2);
	tcase_add_test(tcase, packet_shorter_than_it_says);
	tcase_add_test(tcase, packet_longer_than_it_says);
	tcase_add_loop_test(tcase, packet_of_no_bytes, 0, 2);
	tcase_add_test(tcase, half_a_message_then_the_end);
	tcase_add_test(tcase, half_a_message_then_silence_then_the_rest);
	tcase_add_test(tcase, slow_single_bytes);
	tcase_add_test(tcase, slow_single_bytes_to_one_that_waits);
	tcase_add_loop_test(tcase, out_of_band, 0, 4);
	tcase_add_loop_test(tcase, peer_goes_without_reading, 0, 2);
	tcase_add_loop_test(tcase, peer_shuts_one_direction, 0, 2);
	return run_suite(suite);
}
