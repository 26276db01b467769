/* SPDX-License-Identifier: MIT */
/*
 * Sending memory that the program unmapped or protected crashed
 *
 * Whatever the way to another process, the bytes are copied out of such memory. That
 * fails, the channel and the broker go on, and the storage is as before.
 */
#include "tests/support/broker.h"
#include "tests/support/harm.h"

#include <cowshed-share.h>
#include <sys/socket.h>

struct pair {
	struct cow_group *g;
	struct cow_channel *a, *b;
	int fd[2];
};

static void pair_make(struct pair *p, bool group)
{
	p->g = NULL;
	if (group)
		ok(cow_group_new(&p->g));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p->fd) == 0);
	ok(cow_channel_new(p->fd[0], p->g, 0, &p->a));
	ok(cow_channel_new(p->fd[1], p->g, 0, &p->b));
}

static void pair_free(struct pair *p)
{
	cow_channel_free(p->a);
	cow_channel_free(p->b);
	close(p->fd[0]);
	close(p->fd[1]);
	cow_group_unref(p->g);
}

static struct cow_parcel parcel_of(struct cow_storage *s, enum cow_share_mode mode)
{
	return (struct cow_parcel){ .storage = s,
		                    .length = cow_storage_bytes(s),
		                    .mode = (uint32_t)mode };
}

static struct cow_storage *passed(struct pair *p, struct cow_storage *s, enum cow_share_mode mode)
{
	struct cow_parcel one = parcel_of(s, mode);

	ck_assert_int_eq(cow_channel_send(p->a, &one, 1, NULL, 0), 1);
	ck_assert_int_eq(cow_channel_receive(p->b, &one, 1, NULL, 0, NULL), 1);
	return one.storage;
}

/* What is before it in the list is sent. */
static void ck_not_sent(struct pair *p, struct cow_storage *s, enum cow_share_mode mode)
{
	struct cow_storage *fine = new_filled(10 * PAGE, 0, 3), *arrived;
	struct cow_parcel sent[2] = { parcel_of(fine, COW_SHARE_CLONE), parcel_of(s, mode) };

	fails(-EFAULT, cow_channel_send(p->a, sent + 1, 1, NULL, 0));
	ck_assert_int_eq(cow_channel_send(p->a, sent, 2, NULL, 0), 1);
	ck_assert_int_eq(cow_channel_receive(p->b, sent, 2, NULL, 0, NULL), 1);
	arrived = sent[0].storage;
	ck_pattern(data(arrived), 10 * PAGE, 3);
	cow_storage_unref(arrived);
	cow_storage_unref(fine);
}

static void ck_passed(struct pair *p, const struct block *b, enum cow_share_mode mode)
{
	struct cow_storage *arrived = passed(p, b->s, mode);

	ck_all(data(arrived), b->z);
	cow_storage_unref(arrived);
}

/* `_i` also says whether the two are members of a group. */
START_TEST(it_is_not_sent)
{
	struct block b = block_harmed(_i / 2);
	struct pair p;

	pair_make(&p, _i % 2);
	ck_not_sent(&p, b.s, COW_SHARE_CLONE);
	ck_not_sent(&p, b.s, COW_SHARE_SEALED);
	ck_around(b.p, b.z);
	mend(b.p + b.z->at, b.harm);
	ck_passed(&p, &b, COW_SHARE_SEALED);
	ck_passed(&p, &b, COW_SHARE_CLONE);
	pair_free(&p);
	block_end(&b);
}
END_TEST

/* A tracked storage would live in its new home from then on. */
START_TEST(it_does_not_move)
{
	static const enum cow_share_mode modes[] = { COW_SHARE_CLONE, COW_SHARE_SEALED,
		                                     COW_SHARE_ALIAS };
	enum cow_share_mode mode = modes[_i % 3];
	struct cow_storage *clone;
	struct block b = tracked_harmed(_i / 3, &clone);
	struct pair p;

	pair_make(&p, true);
	ck_not_sent(&p, clone, mode);
	ck_assert_ptr_eq(data(clone), b.p);
	ck_around(b.p, b.z);
	mend(b.p + b.z->at, b.harm);
	cow_storage_unref(passed(&p, clone, mode));
	ck_all(data(clone), b.z);
	ck_all(data(b.s), b.z);
	cow_storage_unref(clone);
	pair_free(&p);
	tracked_end(&b);
}
END_TEST

/* So few bytes travel in the message itself. */
START_TEST(a_small_one_is_not_sent)
{
	struct cow_storage *s, *arrived;
	unsigned char *block = new_block(100, 0);
	struct pair p;

	fill(block, 100, 5);
	ok(cow_storage_from_ptr(block, NULL, &s));
	protects(block);
	pair_make(&p, true);
	ck_not_sent(&p, s, COW_SHARE_CLONE);
	ok(cow__protect((uintptr_t)block, PAGE, PROT_READ | PROT_WRITE, -1));
	arrived = passed(&p, s, COW_SHARE_CLONE);
	ck_pattern(data(arrived), 100, 5);
	cow_storage_unref(arrived);
	cow_storage_unref(s);
	cow_block_free(block);
	pair_free(&p);
}
END_TEST

START_TEST(it_is_not_exported)
{
	struct block b = block_harmed(_i);
	struct cow_storage *again;
	uint64_t offset;
	int fd = -1;

	fails(-EFAULT, cow_storage_export(b.s, COW_SHARE_SEALED, &fd, &offset));
	ck_assert_int_eq(fd, -1);
	mend(b.p + b.z->at, b.harm);
	ok(cow_storage_export(b.s, COW_SHARE_SEALED, &fd, &offset));
	ok(cow_storage_import(fd, offset, b.z->bytes, COW_SHARE_SEALED, &again));
	ck_all(data(again), b.z);
	cow_storage_unref(again);
	close(fd);
	block_end(&b);
}
END_TEST

START_TEST(it_is_not_put)
{
	struct block b = block_harmed(_i);
	struct cow_broker_item item;
	struct cow_storage *again;
	struct cow_broker *broker;
	struct host host;

	host_start(&host, NULL);
	broker = host_connect(&host);
	item = host_item("it", COW_SHARE_SEALED);
	fails(-EFAULT, cow_broker_put(broker, b.s, &item));
	fails(-ENOENT, cow_broker_get(broker, &item, &again, NULL));
	mend(b.p + b.z->at, b.harm);
	ok(cow_broker_put(broker, b.s, &item));
	ok(cow_broker_get(broker, &item, &again, NULL));
	ck_all(data(again), b.z);
	cow_storage_unref(again);
	cow_broker_unref(broker);
	host_end(&host);
	block_end(&b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_send_of_unmapped_memory_crashes");
	TCase *tcase = add_case(suite, "bug_send_of_unmapped_memory_crashes");

	tcase_add_loop_test(tcase, it_is_not_sent, 0, 2 * SIZES * HARMS);
	tcase_add_loop_test(tcase, it_does_not_move, 0, 3 * SIZES * HARMS);
	tcase_add_test(tcase, a_small_one_is_not_sent);
	tcase_add_loop_test(tcase, it_is_not_exported, 0, SIZES * HARMS);
	tcase_add_loop_test(tcase, it_is_not_put, 0, SIZES);
	return run_suite(suite);
}
