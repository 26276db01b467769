/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory that is sent as an alias: devices, this process and others have the same
 * pages until each has freed them
 */
#include "cuda/pinned.h"
#include "tests/support/cuda.h"
#include "tests/support/ends.h"

#include <errno.h>
#include <string.h>

static struct cow__cuda *d;

static void start(void)
{
	cuda_start();
	ok(cow__cuda_get(0, &d));
}

static struct cow_storage *pinned(size_t bytes)
{
	struct cow_storage *s;

	ok(cow_cuda_pinned_new(bytes, &s));
	return s;
}

static uintptr_t at(const struct cow_storage *s)
{
	return (uintptr_t)cow_storage_data(s);
}

static size_t registered(void)
{
	struct ref_usage u;

	ref.usage(&u);
	return u.registered;
}

/* A copy, as the library makes them. */
static void copy(uintptr_t to, uintptr_t from, size_t bytes, const struct cow_storage *host,
                 cow_cuda_stream stream)
{
	if (to == at(host))
		cu_ok(cu->copy_to_host((void *)to, from, bytes, stream));
	else
		cu_ok(cu->copy_to_device(to, (void *)from, bytes, stream));
	must(cow__cuda_pinned_used((void *)at(host), d, stream) == 1);
}

static void nothing_left(void)
{
	cuda_finish(0);
	ok(cow_cuda_pinned_empty_cache());
	ok(cow_cuda_empty_cache(-1));
	ck_assert_uint_eq(registered(), 0);
	ck_assert_uint_eq(cuda_stats(0).pinned_bytes, 0);
	ck_assert_uint_eq(cuda_stats(0).pinned_cached_bytes, 0);
}

struct peer {
	int socket;
	struct gate there, back;
};

/* Knows nothing of devices. */
static void reads_and_writes(void *arg)
{
	struct peer *o = arg;
	struct cow_channel *c;
	struct cow_parcel p;

	ok(cow_channel_new(o->socket, NULL, COW_CHANNEL_TAKE_ALIASES, &c));
	must(cow_channel_receive(c, &p, 1, NULL, 0, NULL) == 1);
	ck_bytes(data(p.storage), 3 * MIB, 9);
	memset(mut(p.storage), 5, 3 * MIB);
	gate_open(&o->there);
	gate_wait(&o->back);
	ck_bytes(data(p.storage), 3 * MIB, 7); /* a device wrote it */
	gate_open(&o->there);
	gate_wait(&o->back); /* the other side is gone, this is not */
	ck_bytes(data(p.storage), 3 * MIB, 7);
	memset(mut(p.storage), 8, 3 * MIB);
	cow_storage_unref(p.storage);
	cow_channel_free(c);
}

/* Sends the storage while a copy to it is under way: the sender waits for the copy. */
static void send_under_way(struct cow_storage *s, struct cow_storage *from, const struct ends *e,
                           cow_cuda_stream a)
{
	uintptr_t at_first = at(s);

	cuda_fill(from, 9, a);
	ref.set(REF_HOLD, 1);
	copy(at(s), at(from), 3 * MIB, s, a);
	send_one(e->mine, s, COW_SHARE_ALIAS);
	ck_assert_uint_ne(at(s), at_first);
	ck_assert_int_eq(cow_cuda_is_pinned(s), 1);
}

/* Copies both ways, asynchronously, as the memory is pinned there. The storage ends while the
 * device writes it; the driver would scold. */
static void end_under_way(struct cow_storage *s, struct cow_storage *other, cow_cuda_stream a)
{
	ref.set(REF_PAGEABLE, 0);
	copy(at(other), at(s), 3 * MIB, s, a);
	ok(cow_cuda_stream_wait(0, a));
	cuda_check(other, 5);
	cuda_fill(other, 7, a);
	copy(at(s), at(other), 3 * MIB, s, a);
	cow_storage_unref(s);
	ok(cow_cuda_pinned_empty_cache());
	ck_assert_uint_eq(registered(), 1);
	ok(cow_cuda_stream_wait(0, a));
}

/* Devices, this process and the other one have the same pages. */
START_TEST(an_alias_is_pinned)
{
	struct cow_storage *s, *to;
	struct peer o;
	cow_cuda_stream a;
	struct ends e;
	pid_t child;

	ends_make(&e, SOCK_STREAM, false);
	gate_make(&o.there);
	gate_make(&o.back);
	o.socket = e.fd[1];
	child = child_start(reads_and_writes, &o);
	start();
	a = cuda_stream(0);
	s = pinned(3 * MIB);
	to = cuda_storage(0, 3 * MIB, COW_CUDA_CACHED);
	send_under_way(s, to, &e, a);
	gate_wait(&o.there);
	ck_bytes(data(s), 3 * MIB, 5);
	end_under_way(s, to, a);
	gate_open(&o.back);
	gate_wait(&o.there);
	ref.set(REF_HOLD, 0);
	cow_storage_unref(to);
	/* No other storage gets the memory, because the peer still writes it. */
	s = pinned(3 * MIB);
	memset(mut(s), 1, 3 * MIB);
	gate_open(&o.back);
	child_finish(child);
	ck_bytes(data(s), 3 * MIB, 1);
	cow_storage_unref(s);
	nothing_left();
	ok(cow_cuda_stream_free(0, a));
	gate_free(&o.there);
	gate_free(&o.back);
	ends_free(&e);
}
END_TEST

/* Sent again, cloned, forked, received back: it is one storage, on the same pages. */
START_TEST(an_alias_is_a_storage)
{
	struct cow_storage *s, *c;
	struct cow_channel *theirs;
	struct cow_parcel p;
	uintptr_t first;
	struct ends e;

	start();
	ends_make(&e, SOCK_STREAM, true);
	ok(cow_channel_new(e.fd[1], e.group, 0, &theirs));
	s = pinned(5000);
	memset(mut(s), 3, 5000);
	send_one(e.mine, s, COW_SHARE_ALIAS);
	first = at(s);
	must(cow_channel_receive(theirs, &p, 1, NULL, 0, NULL) == 1);
	ck_assert_uint_eq(at(p.storage), first);
	send_one(e.mine, p.storage, COW_SHARE_ALIAS);
	ck_assert_uint_eq(at(s), first);
	cow_storage_unref(p.storage);
	c = lazy(s);
	ck_assert_uint_ne(at(c), first);
	memset(mut(s), 4, 5000);
	ck_bytes(data(c), 5000, 3);
	cow_storage_unref(c);
	/* It ends, and comes back out of the message: other addresses, the same pages. */
	cow_storage_unref(s);
	must(cow_channel_receive(theirs, &p, 1, NULL, 0, NULL) == 1);
	ck_bytes(data(p.storage), 5000, 4);
	cow_storage_unref(p.storage);
	cow_channel_free(theirs);
	ends_free(&e);
	nothing_left();
}
END_TEST

struct forked {
	struct cow_storage *s;
	struct gate go;
};

static void has_it_still(void *arg)
{
	struct forked *f = arg;

	gate_wait(&f->go);
	ck_bytes(data(f->s), 3 * MIB, 6);
	cow_storage_unref(f->s);
}

/* As any alias: a child sees what is written later. */
START_TEST(an_alias_over_a_fork)
{
	struct forked f;
	struct ends e;
	pid_t child;

	start();
	ends_make(&e, SOCK_STREAM, false);
	f.s = pinned(3 * MIB);
	memset(mut(f.s), 2, 3 * MIB);
	send_one(e.mine, f.s, COW_SHARE_ALIAS);
	gate_make(&f.go);
	child = child_start(has_it_still, &f);
	memset(mut(f.s), 6, 3 * MIB);
	gate_open(&f.go);
	child_finish(child);
	ck_assert_int_eq(cow_cuda_is_pinned(f.s), 1);
	cow_storage_unref(f.s);
	gate_free(&f.go);
	ends_free(&e);
	nothing_left();
}
END_TEST

/* Nothing changed when it could not be. */
START_TEST(no_alias)
{
	struct cow_parcel p = { .mode = COW_SHARE_ALIAS, .length = MIB };
	uintptr_t first;
	struct ends e;

	start();
	ends_make(&e, SOCK_STREAM, false);
	p.storage = pinned(MIB);
	first = at(p.storage);
	memset(mut(p.storage), 2, MIB);
	ref.fail_call("cuMemHostRegister", 1, COW_CU_OUT_OF_MEMORY);
	fails(-ENOMEM, (int)cow_channel_send(e.mine, &p, 1, NULL, 0));
	must(strstr(cow_last_error(), "pinning host memory") != NULL);
	ck_assert_uint_eq(at(p.storage), first);
	ck_bytes(data(p.storage), MIB, 2);
	expose(p.storage);
	fails(-EBUSY, (int)cow_channel_send(e.mine, &p, 1, NULL, 0));
	cow_storage_unref(p.storage);
	ends_free(&e);
	nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_pinned_alias");
	TCase *c = add_case(s, "alias");

	driver_choose();
	add_test_needing(NEEDS_CONTROL, c, an_alias_is_pinned);
	tcase_add_test(c, an_alias_is_a_storage);
	tcase_add_test(c, an_alias_over_a_fork);
	add_test_needing(NEEDS_CONTROL, c, no_alias);
	return run_suite(s);
}
