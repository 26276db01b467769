/* SPDX-License-Identifier: MIT */
/*
 * Memory in segments of its own is sealed, with every kernel call failing in turn
 *
 * tests/support/fault/sweep.h says what must hold. Where sealing fails the bytes are
 * copied. Where a segment of its own is refused, the block lies beside others.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <cowshed-share.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 4 * 1024 * 1024 + 77 };

static struct {
	int fd[2];
	struct cow_channel *out, *in;
} now;

static void finish(void)
{
	now.in = cow_channel_free(now.in);
	now.out = cow_channel_free(now.out);
	if (now.fd[0])
		close(now.fd[0]);
	if (now.fd[1])
		close(now.fd[1]);
	now.fd[0] = now.fd[1] = 0;
}

static void channels(void)
{
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
	                now.fd) == 0);
	ok(cow_channel_new(now.fd[0], NULL, 0, &now.out));
	ok(cow_channel_new(now.fd[1], NULL, 0, &now.in));
}

/* ---- Birth ---------------------------------------------------------------------- */

static int make(struct herd *herd, size_t bytes)
{
	struct cow_storage_options o = { .size = sizeof(o),
		                         .flags = COW_STORAGE_TRANSPARENT };
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_new(bytes, &o, &s);

	if (r < 0) {
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
		return r;
	}
	fault_disarm();
	sweep_add(herd, HERD_TRANSPARENT, s, NULL, bytes);
	herd->animals[HERD_TRANSPARENT].exposed = expose(s);
	return r;
}

static void nothing(struct herd *herd)
{
	(void)herd;
	finish();
	cow_trim(); /* no memory that was used before */
}

static int storage_new(struct herd *herd)
{
	return make(herd, BYTES);
}

/* Used memory, longer than what is wanted. */
static void used_memory(struct herd *herd)
{
	unsigned char *block;

	(void)herd;
	finish();
	block = new_block(BYTES + MIB, 0);
	memset(block, 0xee, BYTES + MIB);
	cow_block_free(block);
}

/* ---- Sending and receiving ----------------------------------------------------------- */

static void a_storage(struct herd *herd)
{
	finish();
	ck_assert_int_eq(make(herd, BYTES), 0);
	channels();
}

static int send_it(struct herd *herd)
{
	struct cow_parcel p = {
		.storage = herd->animals[HERD_TRANSPARENT].storage,
		.length = BYTES,
		.mode = COW_SHARE_CLONE,
	};
	long r = cow_channel_send(now.out, &p, 1, NULL, 0);

	if (r == 1)
		r = cow_channel_flush(now.out);
	if (r < 0 && r != -EAGAIN && r != -ENOMEM && r != -EMFILE) {
		now.out = cow_channel_free(now.out);
		ok(cow_channel_new(now.fd[0], NULL, 0, &now.out));
	}
	return (int)r;
}

/* ---- Sending on ------------------------------------------------------------------------ */

/* What came, at an address that a program has; one page of it was written. */
static void received(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_TRANSPARENT];
	struct cow_parcel p;

	a_storage(herd);
	ck_assert_int_eq(send_it(herd), 0);
	ck_assert_int_eq(cow_channel_receive(now.in, &p, 1, NULL, 0, NULL), 1);
	cow_storage_unref(a->storage);
	a->storage = p.storage;
	a->exposed = expose(a->storage);
}

static void received_and_written(struct herd *herd)
{
	volatile unsigned char *p;

	received(herd);
	p = herd->animals[HERD_TRANSPARENT].exposed;
	*p = *p;
}

static int clone_it(struct herd *herd)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_lazy_clone(herd->animals[HERD_TRANSPARENT].storage,
	                               &s);

	if (r < 0)
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
	else
		sweep_add_clone(herd, HERD_TRANSPARENT, HERD_CLONE, s);
	return r;
}

/* ---- In place -------------------------------------------------------------------------- */

static void beside_others(struct herd *herd)
{
	finish();
	ok(cow_option_set("share", "no"));
	ck_assert_int_eq(make(herd, BYTES), 0);
	ok(cow_option_set("share", "yes"));
}

static int share_it(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_TRANSPARENT];
	int r = cow_storage_share_in_place(a->storage);

	fault_disarm();
	ck_assert_ptr_eq(expose(a->storage), a->exposed);
	return r;
}

/* ---- fork ------------------------------------------------------------------------------ */

/* The child is right, or it is none: then it ended at once, with 127. */
static void rewrites(void *arg)
{
	struct herd *herd = arg;

	herd_check(herd);
	herd_rewrite(herd, 9000, 1);
	herd_check(herd);
}

static int fork_it(struct herd *herd)
{
	int status = child_status(child_start(rewrites, herd));

	fault_disarm();
	must(status == 0 || status == 127 << 8);
	herd_check(herd);
	return 0;
}

static void forked(struct herd *herd)
{
	a_storage(herd);
	in_child(rewrites, herd);
}

static void sent(struct herd *herd)
{
	a_storage(herd);
	ck_assert_int_eq(send_it(herd), 0);
}

static const struct operation operations[] = {
	{ "new", nothing, storage_new },
	{ "new in used memory", used_memory, storage_new },
	{ "send", a_storage, send_it },
	{ "send again", sent, send_it },
	{ "clone what came", received_and_written, clone_it },
	{ "send what came on", received, send_it },
	{ "share in place", a_storage, share_it },
	{ "share in place, beside others", beside_others, share_it },
	{ "fork", a_storage, fork_it },
	{ "fork when it is sent", sent, fork_it },
	{ "send after a fork", forked, send_it },
};

/* These ways stand for all: there is much to fill and to look at. */
static const int errors[] = { ENOMEM, EMFILE };

START_TEST(every_call_fails)
{
	ok(cow_option_set("share", "yes"));
	must(sweep(&operations[(size_t)_i / COUNT(errors)],
	           errors[(size_t)_i % COUNT(errors)]) > 0);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_seal");
	TCase *tcase = add_case(suite, "fault_seal");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    COUNT(operations) * COUNT(errors));
	return run_suite(suite);
}
