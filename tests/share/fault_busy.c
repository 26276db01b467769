/* SPDX-License-Identifier: MIT */
/*
 * The kernel does not seal a file while a child has it mapped for writing
 *
 * Another thread forks while a storage is copied for a peer. The child may get the mapping
 * by which the copy is made, and keep it for as long as it lives. Sending and exporting
 * failed then (-EBUSY).
 */
#include "tests/support/ends.h"
#include "tests/support/fault/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define BYTES (200 * KIB)

/* Every call fails in turn. The calls of fcntl() are those that seal, and those that move a
 * descriptor up, which can be done without. */
START_TEST(another_file_is_taken)
{
	struct cow_channel *c;
	bool fired = true;
	struct ends e;

	ends_make(&e, SOCK_SEQPACKET, false);
	c = child_channel(&e);
	for (int n = 1; fired; n++) {
		struct cow_storage *s = new_filled(BYTES, 0, 1), *got;
		struct cow_parcel p = cow_parcel_of(s, COW_SHARE_SEALED);
		long r;

		fault_after(n, EBUSY);
		r = cow_channel_send(e.mine, &p, 1, NULL, 0);
		fired = fault_disarm();
		if (fired && fault_fired_nr() == SYS_fcntl && r != 1)
			ck_abort_msg("call %d: %ld, %s", n, r, cow_last_error());
		if (r == 1) {
			got = receive_one(c);
			ck_pattern(data(got), BYTES, 1);
			cow_storage_unref(got);
		}
		cow_storage_unref(s);
	}
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

/* Not for ever: a kernel that always says so is an error, with a sentence. */
START_TEST(not_for_ever)
{
	struct cow_storage *s = new_filled(BYTES, 0, 1);
	uint64_t offset;
	int fd = -1;

	fault_deny(SYS_fcntl, 1, F_ADD_SEALS, EBUSY);
	fails(-EBUSY, cow_storage_export(s, COW_SHARE_SEALED, &fd, &offset));
	ck_assert_ptr_null(strstr(cow_last_error(), "error 16"));
	ck_assert_int_eq(fd, -1);
	ck_pattern(data(s), BYTES, 1);
	cow_storage_unref(s);
}
END_TEST

static bool stop;

static void lives_on(void *arg)
{
	struct gate *end = arg;

	gate_wait(end);
}

/* Each child lives until the next three are there. */
static void *forks(void *arg)
{
	struct gate gates[4];
	pid_t children[4] = { 0 };
	unsigned n = 0;

	(void)arg;
	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED) || n % 4; n++) {
		unsigned i = n % 4;

		if (children[i]) {
			gate_open(&gates[i]);
			child_finish(children[i]);
			gate_free(&gates[i]);
		}
		gate_make(&gates[i]);
		children[i] = child_start(lives_on, &gates[i]);
	}
	for (int i = 0; i < 4 && n; i++) {
		gate_open(&gates[i]);
		child_finish(children[i]);
		gate_free(&gates[i]);
	}
	return NULL;
}

START_TEST(beside_forks)
{
	struct cow_channel *c;
	pthread_t thread;
	struct ends e;

	ends_make(&e, SOCK_SEQPACKET, false);
	c = child_channel(&e);
	stop = false;
	must(pthread_create(&thread, NULL, forks, NULL) == 0);
	for (int i = 0; i < ROUNDS(600); i++) {
		struct cow_storage *s = new_filled(BYTES, 0, 1), *got;

		send_one(e.mine, s, i & 1 ? COW_SHARE_CLONE : COW_SHARE_SEALED);
		got = receive_one(c);
		ck_pattern(data(got), BYTES, 1);
		cow_storage_unref(got);
		cow_storage_unref(s);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	must(pthread_join(thread, NULL) == 0);
	cow_channel_free(c);
	ends_free(&e);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_busy");
	TCase *all = add_case(suite, "busy");

	tcase_add_test(all, another_file_is_taken);
	tcase_add_test(all, not_for_ever);
	if (!UNDER_TSAN)
		tcase_add_test(all, beside_forks);
	return run_suite(suite);
}
