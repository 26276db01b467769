/* SPDX-License-Identifier: MIT */
/*
 * Clones and sharing of device storages while the driver fails
 *
 * Each operation runs with the n-th call of each name failing, for all n until there is no
 * such call. After any failure every storage has its bytes. The operation worked, or left
 * a sentence; tried again, it works. At the end nothing is left in the driver.
 */
#include "tests/support/gpu.h"

#include <cowshed-share.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (2 * MIB)
enum { UNKNOWN = 999, OUT = 2 };

/* Calls whose failure no caller can be told of. */
static const char *const endings[] = { "cuMemRelease", "cuMemAddressFree",
	                               "cuCtxPopCurrent", "cuEventDestroy" };

static const char *const names[] = {
#define CALL(need, member, name, symbol, version, parameters) #name,
#include "cuda/calls.h"
#undef CALL
};

static struct {
	size_t piece;
	enum cow_share_mode mode;
	struct cow_storage *s, *c, *got;
	struct cow_channel *out, *in;
	cow_cuda_stream other;
	int socket[2];
} now;

/* Value 1 all over, in `s` and its clone `c`. */
static void begin(size_t piece, bool clone)
{
	now.s = gpu_new(2 * PIECE, piece, 1);
	now.c = clone ? lazy(now.s) : NULL;
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
	                now.socket) == 0);
	ok(cow_channel_new(now.socket[0], NULL, 0, &now.out));
	ok(cow_channel_new(now.socket[1], NULL, COW_CHANNEL_TAKE_ALIASES, &now.in));
}

static void finish(void)
{
	(void)cow_channel_free(now.out);
	(void)cow_channel_free(now.in);
	close(now.socket[0]);
	close(now.socket[1]);
	(void)cow_storage_unref(now.s);
	(void)cow_storage_unref(now.c);
	(void)cow_storage_unref(now.got);
	now.s = now.c = now.got = NULL;
}

static int write_a_clone(void)
{
	void *p;

	return cow_storage_data_mut_range(now.c, 5, 10, COW_WRITE_AUTO, &p);
}

static int write_the_source_on_another_stream(void)
{
	void *p;
	int r;

	ok(cow_cuda_stream_set(0, now.other));
	r = cow_storage_data_mut_range(now.s, PIECE, 1, COW_WRITE_AUTO, &p);
	ok(cow_cuda_stream_set(0, NULL));
	return r;
}

static int take_over(void)
{
	void *p;
	int r;

	now.c = cow_storage_unref(now.c);
	ok(cow_cuda_stream_set(0, now.other));
	r = cow_storage_data_mut(now.s, &p);
	ok(cow_cuda_stream_set(0, NULL));
	return r;
}

static int copy_whole(void)
{
	return cow_storage_clone(now.s, &now.got);
}

static int send_and_receive(void)
{
	struct cow_parcel p = { .storage = now.s, .length = 2 * PIECE, .mode = now.mode };
	long n = cow_channel_send(now.out, &p, 1, NULL, 0);

	if (n == 1)
		n = cow_channel_receive(now.in, &p, 1, NULL, 0, NULL);
	if (n == 1)
		now.got = p.storage;
	return n < 0 ? (int)n : 0;
}

static int export_and_import(void)
{
	uint64_t offset;
	int fd, r = cow_storage_export(now.s, now.mode, &fd, &offset);

	if (r == 0) {
		r = cow_storage_import(fd, offset, 2 * PIECE, now.mode, &now.got);
		close(fd);
	}
	return r;
}

static const struct operation {
	const char *name;
	int (*run)(void);
	size_t piece;
	bool clone;
	enum cow_share_mode mode;
} operations[] = {
	{ "write, pieces", write_a_clone, PIECE, true, 0 },
	{ "write, single", write_a_clone, 0, true, 0 },
	{ "write, cached", write_a_clone, GPU_CACHED, true, 0 },
	{ "source, pieces", write_the_source_on_another_stream, PIECE, true, 0 },
	{ "source, cached", write_the_source_on_another_stream, GPU_CACHED, true, 0 },
	{ "take over, pieces", take_over, PIECE, true, 0 },
	{ "take over, cached", take_over, GPU_CACHED, true, 0 },
	{ "copy, pieces", copy_whole, PIECE, false, 0 },
	{ "send alias, pieces", send_and_receive, PIECE, false, COW_SHARE_ALIAS },
	{ "send alias of a clone", send_and_receive, PIECE, true, COW_SHARE_ALIAS },
	{ "send clone, pieces", send_and_receive, PIECE, false, COW_SHARE_CLONE },
	{ "send alias, single", send_and_receive, 0, false, COW_SHARE_ALIAS },
	{ "send clone, single", send_and_receive, 0, false, COW_SHARE_CLONE },
	{ "send clone, cached", send_and_receive, GPU_CACHED, false, COW_SHARE_CLONE },
	{ "send alias, cached", send_and_receive, GPU_CACHED, true, COW_SHARE_ALIAS },
	{ "export, single", export_and_import, 0, false, COW_SHARE_CLONE },
};

static bool is_ending(const char *name)
{
	for (size_t i = 0; i < COUNT(endings); i++)
		if (strcmp(endings[i], name) == 0)
			return true;
	return false;
}

static void bytes_are_there(void)
{
	/* Some of it was done on another stream. */
	cu_ok(cu->ctx_synchronize());
	must(gpu_is(now.s, 0, 2 * PIECE, 1));
	if (now.c)
		must(gpu_is(now.c, 0, 2 * PIECE, 1));
	if (now.got)
		must(gpu_is(now.got, 0, 2 * PIECE, 1));
}

/* False: there is no n-th call any more. */
static bool once(const struct operation *o, const char *name, unsigned long n, int code)
{
	uint64_t before;
	bool fired;
	int r;

	begin(o->piece, o->clone);
	now.mode = o->mode;
	before = ref.calls(name);
	must(ref.fail_call(name, n, code) == 0);
	r = o->run();
	fired = ref.calls(name) - before >= n;
	must(ref.fail_call(name, 0, 0) == 0);
	if (r < 0 && (!fired || cow_last_error()[0] == '\0'))
		ck_abort_msg("%s, %s #%lu: %d, %s", o->name, name, n, r,
		             cow_last_error());
	bytes_are_there();
	if (r < 0) {
		r = o->run();
		if (r < 0)
			ck_abort_msg("%s after %s #%lu: %d, %s", o->name, name, n, r,
			             cow_last_error());
		bytes_are_there();
	}
	finish();
	return fired;
}

/* Which calls are worth failing: those that it makes. */
static void notice(const struct operation *o, bool *made)
{
	uint64_t before[COUNT(names)];

	begin(o->piece, o->clone);
	now.mode = o->mode;
	for (size_t i = 0; i < COUNT(names); i++)
		before[i] = ref.calls(names[i]);
	ok(o->run());
	for (size_t i = 0; i < COUNT(names); i++)
		made[i] = ref.calls(names[i]) != before[i] && !is_ending(names[i]);
	finish();
}

START_TEST(every_call_fails_once)
{
	const struct operation *o = &operations[_i];
	struct ref_usage before = { 0 }, after;
	bool made[COUNT(names)];

	gpu_start();
	ref.set(REF_DELAY_US, 20);
	now.other = gpu_stream();
	notice(o, made);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < COUNT(names); i++)
			for (unsigned long n = 1; made[i]; n++)
				if (!once(o, names[i], n, round ? OUT : UNKNOWN))
					break;
		cu_ok(cu->ctx_synchronize());
		ok(cow_cuda_empty_cache(0));
		ok(cow_cuda_empty_cache(0));
		after = gpu_usage();
		if (round == 0)
			before = after; /* what is kept for ever is there now */
	}
	must(after.bytes == 0 && after.mappings == 0 && after.reservations == 0);
	must(after.handles == 0 && after.events <= before.events + 8);
	gpu_stream_end(now.other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fault_cuda_share");
	TCase *t = add_case(s, "share");

	driver_choose();
	tcase_add_loop_test(t, every_call_fails_once, 0, COUNT(operations));
	return run_suite(s);
}
