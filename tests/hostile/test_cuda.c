/* SPDX-License-Identifier: MIT */
/*
 * A hostile peer: device memory
 *
 * Wrong numbers in every field of its description, descriptors of other things, too few and
 * too many of them, sockets that are no queue. Each ends in an error of the contract, the
 * next message arrives, and nothing stays mapped.
 */
#include "tests/support/gpu.h"
#include "tests/support/hostile.h"

#include <cowshed-cuda.h>
#include <stdlib.h>

#define PIECE (2 * MIB)

/* One storage of device memory. `fd` stays the caller's. */
struct attack {
	struct cow__wire_head head;
	struct cow__wire_item item;
	struct cow__wire_device device;
	int fd;
};

static struct attack attack_new(int fd, uint32_t pieces, enum cow_share_mode mode)
{
	struct cow_cuda_device_info info = { .size = sizeof(info) };
	struct attack a = {
		.head = { .magic = COW__WIRE_MAGIC, .version = COW__WIRE_VERSION,
			  .items = 1, .fds = 1,
			  .inline_bytes = sizeof(struct cow__wire_device),
			  .bytes = offsetof(struct attack, fd) },
		.item = { .mode = (uint8_t)mode, .kind = COW__WIRE_DEVICE,
			  .bytes = pieces * PIECE, .length = pieces * PIECE },
		.device = { .piece_bytes = PIECE, .pieces = pieces },
		.fd = fd,
	};

	_Static_assert(offsetof(struct attack, fd) ==
	                       sizeof(a.head) + sizeof(a.item) + sizeof(a.device), "");
	ok(cow_cuda_device_info(0, &info));
	memcpy(a.device.uuid, info.uuid, 16);
	return a;
}

/* A piece of the driver's, as a descriptor. */
static int piece_of(size_t bytes)
{
	struct cow_storage *s = gpu_new(bytes, 0, 5);
	uint64_t offset;
	int fd;

	ok(cow_storage_export(s, COW_SHARE_CLONE, &fd, &offset));
	(void)cow_storage_unref(s);
	return fd;
}

static int queue_of(const int *fds, unsigned n, unsigned packets)
{
	int ends[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	for (unsigned i = 0; i < packets; i++)
		must(put(ends[0], "", 1, fds, n, 0) == 1);
	close(ends[0]);
	return ends[1];
}

static struct ref_usage settled(void)
{
	cu_ok(cu->ctx_synchronize());
	ok(cow_cuda_empty_cache(0));
	return gpu_usage();
}

/* -errno, or 0 for a storage, which is given back. */
static int attack(struct victim *v, const struct attack *a)
{
	struct ref_usage before = settled(), after;
	struct cow_parcel p;
	long n;

	must(put(v->theirs, a, offsetof(struct attack, fd), &a->fd, a->head.fds ? 1 : 0, 0) > 0);
	n = take(v, &p, 1);
	if (n > 0)
		(void)cow_storage_unref(p.storage);
	after = settled();
	must(after.bytes == before.bytes && after.mappings == before.mappings &&
	     after.handles == before.handles && after.reservations == before.reservations);
	return n < 0 ? (int)n : 0;
}

struct field {
	const char *name;
	size_t offset, width;
};
#define ITEM(f)                                                                \
	{ #f, offsetof(struct attack, item.f),                                 \
	  sizeof(((struct attack *)0)->item.f) }
#define DEVICE(f)                                                              \
	{ #f, offsetof(struct attack, device.f),                               \
	  sizeof(((struct attack *)0)->device.f) }
static const struct field fields[] = {
	ITEM(mode), ITEM(kind), ITEM(index), ITEM(page), ITEM(pages), ITEM(generation),
	ITEM(bytes), ITEM(file_offset), ITEM(offset), ITEM(length), DEVICE(uuid[0]),
	DEVICE(uuid[15]), DEVICE(piece_bytes), DEVICE(pieces), DEVICE(flags), DEVICE(id.a),
	DEVICE(event[0]), DEVICE(event[63]),
};
static const uint64_t values[] = {
	0, 1, 2, 3, 6, 7, 64, 255, 4096, 65535, 65536, 1 << 20, 2 << 20, 4 << 20,
	UINT64_MAX, UINT64_MAX - 1, UINT64_MAX / 2, UINT64_MAX / 2 + 1, 0x80000000,
	0x7fffffff, 1ull << 40, 1ull << 63, (1ull << 63) + (2 << 20),
};

START_TEST(every_field_with_every_value)
{
	int one, all[2], queue;
	struct victim v;

	gpu_start();
	one = piece_of(PIECE);
	all[0] = all[1] = one;
	victim_make(&v, SOCK_SEQPACKET);
	for (size_t i = 0; i < COUNT(values); i++)
		for (int many = 0; many < 2; many++) {
			struct attack a;
			int r;

			queue = many ? queue_of(all, 2, 1) : one;
			(void)settled();
			v.fds = footprint_now().fds;
			a = attack_new(queue, many ? 2 : 1, COW_SHARE_CLONE);
			memcpy((char *)&a + fields[_i].offset, &values[i],
			       fields[_i].width);
			r = attack(&v, &a);
			if (r && r != -EBADMSG && r != -ENODEV && r != -ESTALE &&
			    r != -EACCES)
				ck_abort_msg("%s = %#llx: %d", fields[_i].name,
				             (unsigned long long)values[i], r);
			calm(&v);
			if (many)
				close(queue);
		}
	close(one);
	victim_free(&v);
}
END_TEST

START_TEST(descriptors_of_other_things)
{
	int bad[6], pipes[2], good, n = 0, stream[2], both[2];
	struct victim v;

	gpu_start();
	good = piece_of(PIECE);
	must(pipe2(pipes, O_CLOEXEC) == 0);
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) == 0);
	bad[n++] = memfd_of(PIECE, SEALS_ALL);
	bad[n++] = memfd_of(PIECE, 0);
	bad[n++] = open("/dev/null", O_RDWR | O_CLOEXEC);
	bad[n++] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bad[n++] = pipes[0];
	bad[n++] = stream[0];
	victim_make(&v, SOCK_SEQPACKET);
	for (int i = 0; i < n; i++) {
		struct attack a = attack_new(bad[i], 1, COW_SHARE_CLONE);
		int queue;

		ck_assert_int_eq(attack(&v, &a), -EBADMSG);
		a = attack_new(bad[i], 2, COW_SHARE_CLONE);
		ck_assert_int_eq(attack(&v, &a), -EBADMSG);
		/* The second of two. */
		both[0] = good;
		both[1] = bad[i];
		queue = queue_of(both, 2, 1);
		a.fd = queue;
		ck_assert_int_eq(attack(&v, &a), -EBADMSG);
		close(queue);
	}
	v.fds = footprint_now().fds;
	calm(&v);
	for (int i = 0; i < n; i++)
		close(bad[i]);
	close(pipes[1]);
	close(stream[1]);
	close(good);
	victim_free(&v);
}
END_TEST

START_TEST(too_few_and_too_many)
{
	static const struct {
		unsigned fds, packets, pieces;
	} cases[] = { { 1, 1, 2 }, { 3, 1, 2 }, { 1, 2, 2 }, { 253, 1, 252 },
		      { 250, 1, 251 }, { 250, 2, 251 }, { 0, 1, 2 } };
	int fds[RAW_FDS], long_one;
	struct victim v;

	gpu_start();
	fds[0] = piece_of(PIECE);
	for (int i = 1; i < RAW_FDS; i++)
		fds[i] = fds[0];
	victim_make(&v, SOCK_SEQPACKET);
	for (size_t i = 0; i < COUNT(cases); i++) {
		int queue = queue_of(fds, cases[i].fds, cases[i].packets);
		struct attack a = attack_new(queue, cases[i].pieces, COW_SHARE_CLONE);

		ck_assert_int_eq(attack(&v, &a), -EBADMSG);
		close(queue);
	}
	/* An empty queue whose other end is open: the receiver does not wait. */
	{
		int ends[2];
		struct attack a;

		must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
		a = attack_new(ends[1], 2, COW_SHARE_CLONE);
		ck_assert_int_eq(attack(&v, &a), -EBADMSG);
		close(ends[0]);
		close(ends[1]);
	}
	/* A longer piece than was said. */
	long_one = piece_of(3 * PIECE);
	{
		struct attack a = attack_new(long_one, 1, COW_SHARE_CLONE);

		ck_assert_int_eq(attack(&v, &a), -EBADMSG);
	}
	close(long_one);
	close(fds[0]);
	v.fds = footprint_now().fds;
	calm(&v);
	victim_free(&v);
}
END_TEST

/* A name is believed only from the channel that it came from, not from another one's peer. */
START_TEST(names_of_others)
{
	struct attack a;
	struct cow_parcel p, q;
	struct victim v, w;
	int fd;

	gpu_start();
	fd = piece_of(PIECE);
	victim_make(&v, SOCK_SEQPACKET);
	victim_make(&w, SOCK_SEQPACKET);
	a = attack_new(fd, 1, COW_SHARE_ALIAS);
	a.device.id.a = 77;
	must(put(v.theirs, &a, offsetof(struct attack, fd), &fd, 1, 0) > 0);
	must(take(&v, &p, 1) == 1);
	must(put(w.theirs, &a, offsetof(struct attack, fd), &fd, 1, 0) > 0);
	must(take(&w, &q, 1) == 1);
	must(p.storage != q.storage);
	/* From there it is: but not of another size. */
	a.item.bytes = a.item.length = PIECE - 1;
	must(put(v.theirs, &a, offsetof(struct attack, fd), &fd, 1, 0) > 0);
	fails(-EBADMSG, (int)take(&v, &q, 1));
	(void)cow_storage_unref(p.storage);
	(void)cow_storage_unref(q.storage);
	close(fd);
	victim_free(&v);
	victim_free(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hostile_cuda");
	TCase *t = add_case(s, "device");

	driver_choose();
	tcase_add_loop_test(t, every_field_with_every_value, 0, COUNT(fields));
	tcase_add_test(t, descriptors_of_other_things);
	tcase_add_test(t, too_few_and_too_many);
	tcase_add_test(t, names_of_others);
	return run_suite(s);
}
