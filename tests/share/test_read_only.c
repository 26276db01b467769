/* SPDX-License-Identifier: MIT */
/*
 * Read-only imports: memory that we must not write, and that its owner may write
 *
 * Until it is written itself, a tensor on it shows what the owner writes. Clones of it, lazy
 * or not, keep the bytes of their time.
 */
#include "tests/support/dlpack.h"
#include "tests/support/tensors.h"

#include <cowshed-file.h>
#include <cowshed-share.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N = 1 << 20, PART = N / 2 };

static int32_t memory[N];
static int deleted;

static void count(Versioned *self)
{
	(void)self;
	deleted++;
}

/* The memory's first n elements: 0, 1, 2, ... */
static struct cow_tensor *import(int64_t n)
{
	static int64_t sizes[1];
	static Versioned v;
	struct cow_tensor *t;

	for (int i = 0; i < N; i++)
		memory[i] = i;
	deleted = 0;
	*sizes = n;
	v = (Versioned){
		.version = { 1, 0 },
		.deleter = count,
		.flags = 1,
		.dl_tensor = { .data = memory, .device = { 1, 0 }, .ndim = 1,
		               .dtype = { 0, 32, 1 }, .shape = sizes },
	};
	ok(cow_tensor_from_dlpack(&v, true, &t));
	ck_assert_ptr_eq(cow_tensor_data(t), memory);
	return t;
}

/* The owner has written; this still has the bytes from before. */
static void ck_old(struct cow_tensor *t)
{
	const int32_t *e = cow_tensor_data(t);

	must(e[0] == 0 && e[PART - 1] == PART - 1);
	cow_tensor_unref(t);
}

/* We never write the memory, and give it back when it is no longer needed. */
START_TEST(written_by_us)
{
	struct cow_tensor *t = import(6), *u;
	void *p;

	ok(cow_tensor_lazy_clone(t, &u));
	ok(cow_tensor_data_mut(t, COW_WRITE_AUTO, &p));
	ck_assert_ptr_ne(p, memory);
	ck_assert_int_eq(deleted, 1);
	*(int32_t *)p = 99;
	ck_elements(t, 99, 1, 2, 3, 4, 5);
	ok(cow_tensor_fill(u, COW_INT8, "\1"));
	ck_assert_int_eq(memory[0], 0);
	cow_tensor_unref(t);
	cow_tensor_unref(u);
	ck_assert_int_eq(deleted, 1);
	cow_tensor_unref(import(6)); /* never written */
	ck_assert_int_eq(deleted, 1);
}
END_TEST

START_TEST(written_by_its_owner)
{
	const struct cow_to to = { .size = sizeof(to), .dtype = -1, .copy = true,
		                   .format = COW_FORMAT_PRESERVE,
		                   .flags = COW_COPY_LAZY };
	struct cow_tensor *t = import(N), *half, *r[7];
	struct cow_storage *from = cow_tensor_storage(t), *s;

	ok(cow_tensor_lazy_clone(t, &r[0]));
	ok(cow_tensor_to(t, &to, &r[1]));
	ok(cow_tensor_contiguous(t, COW_FORMAT_PRESERVE, COW_COPY_LAZY, &r[2]));
	ok(cow_tensor_reshape(t, 2, SIZES(2, PART), COW_COPY_LAZY, &r[3]));
	r[4] = tensor(COW_INT32, N);
	ok(cow_tensor_copy(r[4], t, COW_COPY_LAZY));
	half = slice(cow_tensor_ref(t), 0, 0, PART, 1);
	r[5] = slice(tensor(COW_INT32, N), 0, 0, PART, 1);
	ok(cow_tensor_copy(r[5], half, COW_COPY_LAZY));
	ok(cow_storages_lazy_clone(&from, 1, NULL, &s));
	ok(cow_tensor_on(s, COW_INT32, 1, SIZES(N), NULL, 0, &r[6]));
	cow_storage_unref(s);
	memory[0] = memory[PART - 1] = -1;
	ck_assert_int_eq(*(const int32_t *)cow_tensor_data(t), -1);
	for (int i = 0; i < 7; i++)
		ck_old(r[i]);
	cow_tensor_unref(half);
	ck_assert_int_eq(deleted, 0);
	cow_tensor_unref(t);
	ck_assert_int_eq(deleted, 1);
}
END_TEST

/* Only the part is copied, and only once, into memory that there is already. */
START_TEST(copies_no_more)
{
	struct cow_tensor *t = import(N), *u, *to = tensor(COW_INT32, N);
	struct cow_tensor *part = slice(cow_tensor_ref(t), 0, 3, 6, 1);
	const void *at = cow_tensor_data(to);
	uint64_t before = stats_now().bytes_copied;

	ok(cow_tensor_lazy_clone(part, &u));
	must(stats_now().bytes_copied - before < 1000);
	ck_elements(u, 3, 4, 5);
	ck_assert_uint_eq(cow_storage_bytes(cow_tensor_storage(u)), 12);
	ok(cow_tensor_copy(to, t, COW_COPY_LAZY));
	ck_assert_ptr_eq(cow_tensor_data(to), at);
	cow_tensor_unref(u);
	cow_tensor_unref(to);
	cow_tensor_unref(part);
	cow_tensor_unref(t);
}
END_TEST

/* Our own export of a storage whose address its owner writes to. */
START_TEST(of_a_transparent_storage)
{
	struct cow_tensor *a = counting(N), *t, *u;
	int32_t *p;
	void *m;

	p = (void *)expose(cow_tensor_storage(a));
	ok(cow_tensor_to_dlpack(a, true, true, &m));
	ok(cow_tensor_from_dlpack(m, true, &t));
	ck_assert_ptr_eq(cow_tensor_data(t), p);
	ok(cow_tensor_lazy_clone(t, &u));
	p[0] = p[PART - 1] = -1;
	ck_old(u);
	cow_tensor_unref(t);
	cow_tensor_unref(a);
}
END_TEST

/* Exported again, read-only: the same bytes, also when the tensor is written or freed. */
START_TEST(exported)
{
	struct cow_tensor *t = import(N);
	uint64_t before = stats_now().bytes_copied;
	Versioned *v;
	void *p;

	ok(cow_tensor_to_dlpack(t, true, true, &p));
	v = p;
	ck_assert_uint_eq(v->flags, 1);
	ck_assert_ptr_eq(v->dl_tensor.data, memory);
	ck_assert_uint_eq(stats_now().bytes_copied, before);
	ok(cow_tensor_fill(t, COW_INT8, "\1"));
	must(memory[0] == 0 && memory[1] == 1);
	cow_tensor_unref(t);
	ck_assert_int_eq(deleted, 0);
	v->deleter(v);
	ck_assert_int_eq(deleted, 1);
}
END_TEST

/* Saved to a file, without a copy. */
START_TEST(saved)
{
	char path[] = "/tmp/cowshed-read-only-XXXXXX";
	struct cow_tensor *t = import(N);
	uint64_t before = stats_now().bytes_copied;
	struct cow_storage *back;
	int fd = mkstemp(path);

	must(fd >= 0 && unlink(path) == 0);
	ok(cow_storage_save_fd(cow_tensor_storage(t), fd, 0, 0, NULL));
	ck_assert_uint_eq(stats_now().bytes_copied, before);
	ok(cow_storage_load_fd(fd, 0, sizeof(memory), 0, &back));
	ck_assert_mem_eq(data(back), memory, sizeof(memory));
	ck_assert_ptr_eq(cow_tensor_data(t), memory);
	cow_storage_unref(back);
	close(fd);
	cow_tensor_unref(t);
	ck_assert_int_eq(deleted, 1);
}
END_TEST

/* Sent to another process: a copy each time, and the tensor still shows the owner's bytes. */
START_TEST(sent)
{
	struct cow_tensor *t = import(N);
	struct cow_parcel p = { .storage = cow_tensor_storage(t),
		                .length = sizeof(memory), .mode = COW_SHARE_CLONE };
	struct cow_channel *c;
	int fd[2];

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
	ok(cow_channel_new(fd[0], NULL, 0, &c));
	ck_assert_int_eq(cow_channel_send(c, &p, 1, NULL, 0), 1);
	ck_assert_ptr_eq(cow_tensor_data(t), memory);
	memory[5] = -1;
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(t))[5], -1);
	cow_channel_free(c);
	close(fd[0]);
	close(fd[1]);
	cow_tensor_unref(t);
}
END_TEST

/* Its address is given away: it is copied, and the copy is found by the address, of any size. */
START_TEST(exposed)
{
	static const int64_t sizes[] = { 3, N };
	struct cow_tensor *t = import(sizes[_i]);
	struct cow_storage *s = cow_tensor_storage(t), *found;
	unsigned char *p = expose(s);

	ck_assert_ptr_ne(p, (void *)memory);
	ck_assert_int_eq(deleted, 1);
	ok(cow_storage_from_ptr(p + 5, NULL, &found));
	ck_assert_ptr_eq(found, s);
	cow_storage_unref(found);
	must(p[0] == 0 && p[4] == 1 && p[8] == 2);
	cow_tensor_unref(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_read_only");
	TCase *tcase = add_case(suite, "read_only");

	tcase_add_test(tcase, written_by_us);
	tcase_add_test(tcase, written_by_its_owner);
	tcase_add_test(tcase, copies_no_more);
	tcase_add_test(tcase, of_a_transparent_storage);
	tcase_add_test(tcase, exported);
	tcase_add_test(tcase, saved);
	tcase_add_test(tcase, sent);
	tcase_add_loop_test(tcase, exposed, 0, 2);
	return run_suite(suite);
}
