/* SPDX-License-Identifier: MIT */
/*
 * Device storages as descriptors, what they expose, and what is refused, on the
 * reference driver
 */
#include "tests/support/gpu.h"

#include <cowshed-broker.h>
#include <cowshed-share.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (2 * MIB)

START_TEST(one_piece_as_a_descriptor)
{
	struct cow_storage *s, *a, *c;
	uint64_t offset;
	int fd;

	gpu_start();
	s = gpu_new(PIECE + 9, 0, 1);
	ok(cow_storage_export(s, COW_SHARE_CLONE, &fd, &offset));
	must(offset == 0);
	ok(cow_storage_import(fd, 0, PIECE + 9, COW_SHARE_CLONE, &c));
	/* A process with the descriptor can write its memory, so it must be neither the
	 * storage's nor the clone's. */
	cu_ok(cu->ctx_synchronize());
	if (driver_is_reference())
		must(pwrite(fd, "x", 1, 3) == 1);
	close(fd);
	gpu_fill(s, 0, 1, 2);
	must(gpu_is(s, 1, PIECE + 8, 1));
	must(gpu_is(c, 0, PIECE + 9, 1) && gpu_is(s, 0, 1, 2));
	ok(cow_storage_export(s, COW_SHARE_ALIAS, &fd, &offset));
	ok(cow_storage_import(fd, 0, PIECE + 9, COW_SHARE_ALIAS, &a));
	fails(-EBADMSG, cow_storage_import(fd, 0, 9 * PIECE, COW_SHARE_ALIAS, &a));
	fails(-EBADMSG, cow_storage_import(fd, 1, PIECE, COW_SHARE_ALIAS, &a));
	close(fd);
	gpu_fill(a, 0, 1, 3);
	must(gpu_is(s, 0, 1, 3) && gpu_is(c, 0, 1, 1));
	(void)cow_storage_unref(s);
	(void)cow_storage_unref(a);
	(void)cow_storage_unref(c);
	s = gpu_new(2 * PIECE, PIECE, 1);
	fails(-EOPNOTSUPP, cow_storage_export(s, COW_SHARE_CLONE, &fd, &offset));
	(void)cow_storage_unref(s);
}
END_TEST

/* A process that maps a piece sees all of it. */
START_TEST(nothing_of_the_neighbours_goes_along)
{
	static unsigned char seen[PIECE];
	struct cow_storage *s, *near[2];
	uint64_t offset;
	int fd;

	gpu_start();
	for (int cached = 0; cached < 2; cached++) {
		near[0] = gpu_new(1000, GPU_CACHED, 0xee);
		s = gpu_new(1000, cached ? GPU_CACHED : 0, 0xee);
		near[1] = gpu_new(1000, GPU_CACHED, 0xee);
		gpu_fill(s, 0, 1000, 1);
		ok(cow_storage_export(s, COW_SHARE_CLONE, &fd, &offset));
		must(offset == 0 && pread(fd, seen, PIECE, 0) == (ssize_t)PIECE);
		ck_bytes(seen, 1000, 1);
		ck_bytes(seen + 1000, PIECE - 1000, 0);
		close(fd);
		(void)cow_storage_unref(s);
		(void)cow_storage_unref(near[0]);
		(void)cow_storage_unref(near[1]);
	}
}
END_TEST

START_TEST(what_can_not_be)
{
	int socket[2];
	struct cow_parcel p = { .length = PIECE }, q;
	struct cow_channel *c, *d;

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socket) == 0);
	gpu_start();
	p.storage = gpu_new(PIECE, 0, 1);
	ok(cow_channel_new(socket[0], NULL, 0, &c));
	ok(cow_channel_new(socket[1], NULL, 0, &d));
	p.mode = COW_SHARE_SEALED;
	fails(-EOPNOTSUPP, (int)cow_channel_send(c, &p, 1, NULL, 0));
	p.mode = COW_SHARE_CLONE;
	p.strategy = COW_STRATEGY_BROKER;
	fails(-EOPNOTSUPP, (int)cow_channel_send(c, &p, 1, NULL, 0));
	p.strategy = COW_STRATEGY_DEFAULT;
	p.mode = COW_SHARE_ALIAS;
	must(cow_channel_send(c, &p, 1, NULL, 0) == 1);
	fails(-EACCES, (int)cow_channel_receive(d, &q, 1, NULL, 0, NULL));
	expose(p.storage);
	/* It is one already. */
	must(cow_channel_send(c, &p, 1, NULL, 0) == 1);
	fails(-EACCES, (int)cow_channel_receive(d, &q, 1, NULL, 0, NULL));
	(void)cow_storage_unref(p.storage);
	p.storage = gpu_new(PIECE, 0, 1);
	expose(p.storage);
	fails(-EBUSY, (int)cow_channel_send(c, &p, 1, NULL, 0));
	p.mode = COW_SHARE_CLONE;
	must(cow_channel_send(c, &p, 1, NULL, 0) == 1);
	must(cow_channel_receive(d, &q, 1, NULL, 0, NULL) == 1);
	/* Its owner writes without notice, in place. */
	cu_ok(cu->set_8((uintptr_t)data(p.storage), 2, PIECE, NULL));
	must(gpu_is(q.storage, 0, PIECE, 1));
	(void)cow_storage_unref(q.storage);
	(void)cow_storage_unref(p.storage);
	(void)cow_channel_free(c);
	(void)cow_channel_free(d);
	close(socket[0]);
	close(socket[1]);
}
END_TEST

/* They have no piece, but a device. */
START_TEST(empty_ones_stay_the_devices)
{
	struct cow_parcel p[3] = { { .length = 0 } }, q[3];
	struct cow_channel *c, *d;
	int socket[2];

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socket) == 0);
	gpu_start();
	ok(cow_channel_new(socket[0], NULL, 0, &c));
	ok(cow_channel_new(socket[1], NULL, 0, &d));
	for (int mode = COW_SHARE_ALIAS; mode <= COW_SHARE_SEALED; mode++) {
		int last = cow_cuda_count() - 1;

		ok(cow_cuda_storage_new(last, 0, NULL, &p[0].storage));
		p[1].storage = new_filled(100, 0, 5);
		p[2].storage = new_storage(0, 0);
		p[1].length = 100;
		p[0].mode = p[2].mode = (uint32_t)mode;
		p[1].mode = COW_SHARE_CLONE;
		must(cow_channel_send(c, p, 3, NULL, 0) == 3);
		must(cow_channel_receive(d, q, 3, NULL, 0, NULL) == 3);
		ck_assert_int_eq(cow_storage_device(q[0].storage).type, COW_DEVICE_CUDA);
		ck_assert_int_eq(cow_storage_device(q[0].storage).index, last);
		must(cow_storage_bytes(q[0].storage) == 0);
		ck_pattern(data(q[1].storage), 100, 5);
		ck_assert_int_eq(cow_storage_device(q[2].storage).type, COW_DEVICE_CPU);
		/* And may grow there. */
		ok(cow_storage_resize(q[0].storage, 1000));
		ck_assert_int_eq(cow_storage_device(q[0].storage).index, last);
		for (int i = 0; i < 3; i++) {
			(void)cow_storage_unref(p[i].storage);
			(void)cow_storage_unref(q[i].storage);
		}
	}
	(void)cow_channel_free(c);
	(void)cow_channel_free(d);
	close(socket[0]);
	close(socket[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_export");
	TCase *t = add_case(s, "export");

	driver_choose();
	tcase_add_test(t, one_piece_as_a_descriptor);
	add_test_needing(NEEDS_CONTROL, t, nothing_of_the_neighbours_goes_along);
	tcase_add_test(t, what_can_not_be);
	tcase_add_test(t, empty_ones_stay_the_devices);
	return run_suite(s);
}
