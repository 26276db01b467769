/* SPDX-License-Identifier: MIT */
/*
 * What public functions refuse
 *
 * Wrong arguments, and storages that an operation is not for: an error that says so, and outputs
 * that nobody touched. Found by reading what no other test runs (make coverage).
 */
#include "cowshed-broker.h"
#include "cowshed-file.h"
#include "cowshed-share.h"
#include "tests/support/support.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define UNTOUCHED ((void *)0x5eed)

static int copies_left;

/* Elements of four bytes, of which only so many can be copied. */
static int copy_elements(void *user, void *to, const void *from, size_t count)
{
	(void)user;
	if (copies_left-- == 0)
		return -EOVERFLOW;
	memcpy(to, from, 4 * count);
	return 0;
}

static const struct cow_element_hooks hooks = {
	.size = sizeof(hooks),
	.element_bytes = 4,
	.copy = copy_elements,
};

static struct cow_storage *of_elements(size_t count)
{
	const struct cow_storage_options o = { .size = sizeof(o), .elements = &hooks };
	struct cow_storage *s;

	ok(cow_storage_new(4 * count, &o, &s));
	return s;
}

START_TEST(all_clones_or_none)
{
	struct cow_storage *s[3] = { new_filled(MIB, 0, 1), of_elements(100), of_elements(100) };
	struct cow_storage *clone[3] = { UNTOUCHED, UNTOUCHED, UNTOUCHED }, *none[1] = { NULL };
	uint64_t copied = 77;

	fails(-EINVAL, cow_storages_lazy_clone(NULL, 1, NULL, clone));
	fails(-EINVAL, cow_storages_lazy_clone(s, 1, NULL, NULL));
	fails(-EINVAL, cow_storages_lazy_clone(none, 1, NULL, clone));
	ck_assert_ptr_eq(clone[0], UNTOUCHED);
	copies_left = 1; /* the third can't be cloned */
	fails(-EOVERFLOW, cow_storages_lazy_clone(s, 3, &copied, clone));
	for (int i = 0; i < 3; i++)
		ck_assert_ptr_null(clone[i]);
	ck_assert_uint_eq(copied, 77);
	ck_assert_uint_eq(state_of(s[0]), COW_STATE_OWNED);
	copies_left = 2;
	ok(cow_storages_lazy_clone(s, 3, &copied, clone));
	ck_assert_uint_eq(copied, 800);
	for (int i = 0; i < 3; i++) {
		cow_storage_unref(clone[i]);
		cow_storage_unref(s[i]);
	}
}
END_TEST

START_TEST(elements_have_no_bytes_to_share)
{
	struct cow_storage *s = of_elements(100);
	struct cow_broker_item item = { 0 };
	struct cow_parcel p = { .storage = s, .length = 400 };
	struct cow_channel *c;
	struct cow_data_ptr ptr;
	uint64_t offset = 77, done = 77;
	int fd = 77, pair[2];
	void *at = UNTOUCHED;

	fails(-EOPNOTSUPP, cow_storage_expose(s, &at));
	ck_assert_ptr_eq(at, UNTOUCHED);
	fails(-EOPNOTSUPP, cow_storage_export(s, COW_SHARE_CLONE, &fd, &offset));
	fails(-EOPNOTSUPP, cow_storage_save(s, "/nowhere", 0, 0, &done));
	ck_assert_int_eq(fd, 77);
	ck_assert_uint_eq(offset, 77);
	ck_assert_uint_eq(done, 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ok(cow_channel_new(pair[0], NULL, 0, &c));
	fails(-EOPNOTSUPP, (int)cow_channel_send(c, &p, 1, NULL, 0));
	fails(-EINVAL, (int)cow_channel_send(c, &p, 0, NULL, 0));
	fails(-EINVAL, (int)cow_channel_send(c, &p, 0, "", COW_NOTE_MAX + 1));
	fails(-EINVAL, (int)cow_channel_receive(c, NULL, 1, NULL, 0, NULL));
	cow_channel_free(c);
	close(pair[1]);
	/* Three quarters of an element. */
	ok(cow_allocator_allocate(cow_allocator_default(), 3, &ptr));
	fails(-EINVAL, cow_storage_swap_data_ptr(s, &ptr, 3));
	cow_data_ptr_clear(&ptr);
	fails(-EINVAL, cow_broker_put(NULL, s, &item));
	cow_storage_unref(s);
}
END_TEST

START_TEST(an_address_that_was_given_away)
{
	struct cow_storage *s = new_filled(MIB, 0, 3);
	struct cow_data_ptr ptr;
	unsigned char *at = expose(s), *mine;

	ok(cow_allocator_allocate(cow_allocator_default(), MIB, &ptr));
	mine = ptr.data;
	cow_storage_ref(s); /* who knows the address */
	fails(-EBUSY, cow_storage_swap_data_ptr(s, &ptr, MIB));
	ck_assert_ptr_eq(ptr.data, mine);
	ck_assert_ptr_eq(data(s), at);
	ck_pattern(at, MIB, 3);
	cow_data_ptr_clear(&ptr);
	cow_storage_unref(s);
	cow_storage_unref(s);
}
END_TEST

START_TEST(sharing)
{
	struct cow_storage *s = new_storage(100, 0), *ret = UNTOUCHED;
	struct cow_group *g = UNTOUCHED;
	uint64_t offset = 77;
	int fd = 77;

	fails(-EINVAL, cow_group_new(NULL));
	fails(-EINVAL, cow_group_join(0, NULL));
	fails(-EBADMSG, cow_group_join(-1, &g));
	ck_assert_ptr_eq(g, UNTOUCHED);
	ok(cow_group_new(&g));
	fails(-EINVAL, cow_group_fd(g, NULL));
	fails(-EINVAL, cow_group_fd(NULL, &fd));
	fails(-EINVAL, cow_group_storage_new(NULL, 100, COW_SHARE_CLONE, &ret));
	fails(-EINVAL, cow_group_storage_new(g, 100, (enum cow_share_mode)9, &ret));
	fails(-EINVAL, cow_storage_export(NULL, COW_SHARE_CLONE, &fd, &offset));
	fails(-EINVAL, cow_storage_export(s, (enum cow_share_mode)9, &fd, &offset));
	fails(-EINVAL, cow_storage_import(0, 0, 1, (enum cow_share_mode)9, &ret));
	fails(-EINVAL, cow_channel_flush(NULL));
	ck_assert_ptr_eq(ret, UNTOUCHED);
	ck_assert_int_eq(fd, 77);
	cow_group_unref(g);
	cow_storage_unref(s);
}
END_TEST

START_TEST(files)
{
	const uint32_t both = COW_FILE_SHARED | COW_FILE_EXCLUSIVE | COW_FILE_NO_CREATE;
	struct cow_storage *ret = UNTOUCHED;
	int fd = 77;

	fails(-EINVAL, cow_storage_open("/tmp/x", 1, both, &ret));
	fails(-EINVAL, cow_storage_open("/tmp/x", SIZE_MAX, COW_FILE_SHARED, &ret));
	fails(-EINVAL, cow_storage_open_fd(0, 0, 1, 1u << 31, &ret));
	fails(-EINVAL, cow_storage_file_fd(NULL, &fd));
	fails(-EINVAL, cow_storage_load("/proc/self/exe", 0, SIZE_MAX - 1, 0, &ret));
	ck_assert_ptr_eq(ret, UNTOUCHED);
	ck_assert_int_eq(fd, 77);
}
END_TEST

START_TEST(brokers)
{
	struct cow_broker_options o = { .size = sizeof(o), .address = "@cowshed-nobody" };
	struct cow_broker_item item = { 0 };
	struct cow_broker *b = UNTOUCHED;
	struct cow_storage *ret = UNTOUCHED;
	char program[5000];
	uint64_t cursor = 7;

	fails(-ECONNREFUSED, cow_broker_open(&o, &b));
	o.flags = 1u << 31;
	fails(-EINVAL, cow_broker_open(&o, &b));
	memset(program, 'x', sizeof(program));
	program[sizeof(program) - 1] = '\0';
	o.flags = COW_BROKER_START;
	o.program = program;
	fails(-ENAMETOOLONG, cow_broker_open(&o, &b));
	fails(-EINVAL, cow_broker_refresh(NULL));
	fails(-EINVAL, cow_broker_get(NULL, &item, &ret, NULL));
	fails(-EINVAL, cow_broker_drop(NULL, &item));
	fails(-EINVAL, cow_broker_release(NULL, &item));
	fails(-EINVAL, cow_broker_list(NULL, &cursor, &item));
	fails(-EINVAL, cow_strategy_set((enum cow_strategy)99, NULL));
	ck_assert_ptr_eq(b, UNTOUCHED);
	ck_assert_ptr_eq(ret, UNTOUCHED);
	ck_assert_uint_eq(cursor, 7);
}
END_TEST

START_TEST(tensors)
{
	struct cow_tensor *t = tensor_new(COW_FLOAT32, 1, SIZES(4), COW_FORMAT_CONTIGUOUS);
	struct cow_tensor *ret = UNTOUCHED;
	struct cow_quantizer q = { .size = sizeof(q) };

	fails(-EINVAL, cow_tensor_expand(NULL, 1, SIZES(4), &ret));
	fails(-EINVAL, cow_tensor_unsqueeze(t, 0, NULL));
	fails(-EINVAL, cow_tensor_resize(NULL, 1, SIZES(4), COW_FORMAT_CONTIGUOUS, &ret));
	fails(-EINVAL, cow_tensor_quantize(NULL, COW_QINT8, &q, &ret));
	fails(-EINVAL, cow_tensor_dequantize(t, NULL));
	fails(-ENODATA, cow_tensor_get_quantizer(t, &q));
	q.size = 0;
	fails(-EINVAL, cow_tensor_get_quantizer(t, &q));
	ck_assert_ptr_eq(ret, UNTOUCHED);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(the_rest)
{
	static const struct cow_profiler sizeless = { .size = 0 };
	void *at = UNTOUCHED;

	fails(-EINVAL, cow_profiler_set(&sizeless));
	fails(-EINVAL, cow_block_new(1, SIZE_MAX / 2 + 1, 0, &at));
	ck_assert_ptr_eq(at, UNTOUCHED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("refused");
	TCase *tcase = add_case(suite, "refused");

	tcase_add_test(tcase, all_clones_or_none);
	tcase_add_test(tcase, elements_have_no_bytes_to_share);
	tcase_add_test(tcase, an_address_that_was_given_away);
	tcase_add_test(tcase, sharing);
	tcase_add_test(tcase, files);
	tcase_add_test(tcase, brokers);
	tcase_add_test(tcase, tensors);
	tcase_add_test(tcase, the_rest);
	return run_suite(suite);
}
