/* SPDX-License-Identifier: MIT */
/*
 * A thread forked while another thread swapped the bytes of a storage
 *
 * cow_storage_swap_data_ptr() hands the old bytes over. It took the storage off their tile without
 * the engine's lock. A fork asks each tile for its storage: a data race, in C. ThreadSanitizer
 * reports it here.
 */
#include "tests/support/support.h"

#include <pthread.h>

#define BYTES (4 * MIB)

struct both {
	struct cow_storage *storage;
	struct cow_data_ptr bytes;
	int swapped, forked;
};

/* Nothing but a note orders the swap and the fork, so ThreadSanitizer sees the race each time. */
static void *swaps(void *arg)
{
	struct both *b = arg;

	ok(cow_storage_swap_data_ptr(b->storage, &b->bytes, PAGE));
	__atomic_store_n(&b->swapped, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&b->forked, __ATOMIC_RELAXED))
		;
	return NULL;
}

static void has_both(void *arg)
{
	struct both *b = arg;

	ck_pattern(data(b->storage), PAGE, 2);
	ck_pattern(b->bytes.data, BYTES, 1);
}

START_TEST(fork_after_a_swap)
{
	static unsigned char other[PAGE];
	struct both b = { .storage = new_filled(BYTES, 0, 1), .bytes = { .data = other } };
	pthread_t thread;

	fill(other, PAGE, 2);
	must(pthread_create(&thread, NULL, swaps, &b) == 0);
	while (!__atomic_load_n(&b.swapped, __ATOMIC_RELAXED))
		;
	in_child(has_both, &b);
	__atomic_store_n(&b.forked, 1, __ATOMIC_RELAXED);
	must(pthread_join(thread, NULL) == 0);
	ck_pattern(b.bytes.data, BYTES, 1);
	cow_data_ptr_clear(&b.bytes);
	cow_storage_unref(b.storage);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("swap_races_with_a_fork");

	tcase_add_test(add_case(suite, "bug"), fork_after_a_swap);
	return run_suite(suite);
}
