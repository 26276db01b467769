/* SPDX-License-Identifier: MIT */
/*
 * A child that gets copies of blocks beside spare pages, with each of its calls failing
 *
 * Beside a descriptor for direct I/O a child gets a copy of each block, and of the pages that
 * a block showed it holds none. Of spare pages and rewrites that have begun it holds none
 * either (core/memory/spare.h). Between the two it has pages whose count is not right yet. Any
 * call of the kernel may fail there. The child then has the right bytes or ends with status
 * 127, and its parent gets all pages back.
 */
#include "core/storage/storage.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRED = 3, NO_MEMORY = 127, CALLS_MAX = 500, BLOCK = 4 * MIB };

static const int errors[] = { ENOMEM, FAULT_LASTING | ENOMEM, EPERM, FAULT_POOLS };
enum { ERRORS = COUNT(errors) };

/* Which call of the coming child fails; 0: none. */
static int fail_in_child_n, fail_in_child_error;

/* In the child, before the library's handler. */
static void arm_child(void)
{
	if (fail_in_child_n > 0)
		fault_after(fail_in_child_n, fail_in_child_error);
}

/* Handlers run in the order of registration, and constructors with a priority before those
 * without. */
__attribute__((constructor(101))) static void register_first(void)
{
	pthread_atfork(NULL, NULL, arm_child);
}

/* `rewritten` has spare pages; a part of `shows` shows pages that are spare by now. */
struct state {
	struct cow_storage *rewritten, *shows, *plain;
	struct cow_rewrite *begun;
	struct gate end;
	int started[2]; /* nothing comes from a child that ended at once */
};

/* A rewrite that has begun is the parent's: the child has the old bytes. */
static void state_make(struct state *s, bool begins)
{
	struct cow_range all;
	struct cow_storage *clone;
	size_t first, last;
	void *at;

	s->rewritten = new_filled(BLOCK, COW_STORAGE_TRANSPARENT, 1);
	s->shows = new_filled(BLOCK, 0, 9);
	s->plain = new_filled(2 * MIB + 5, COW_STORAGE_TRANSPARENT, 3);
	all = (struct cow_range){ expose(s->rewritten), BLOCK };
	clone = lazy(s->rewritten);
	ok(cow_storages_write_intent(&s->rewritten, 1, COW_WRITE_AUTO, NULL));
	cow_storage_unref(clone);
	ck_assert_int_eq(cow__storage_copy_lazily(s->shows, 0, s->rewritten, 0, BLOCK / 2, &first,
	                                          &last), 1);
	ok(cow_storages_write_intent(&s->rewritten, 1, COW_WRITE_AUTO, NULL));
	s->begun = NULL;
	if (begins) {
		clone = lazy(s->rewritten);
		ok(cow_rewrite_begin(&all, &at, &s->begun));
		cow_storage_unref(clone);
		fill(at, BLOCK, 5);
	}
	gate_make(&s->end);
	must(pipe(s->started) == 0);
}

static void state_check(const struct state *s)
{
	ck_pattern(data(s->rewritten), BLOCK, 1);
	ck_pattern(data(s->shows), BLOCK / 2, 1);
	ck_pattern(data(s->plain), 2 * MIB + 5, 3);
}

static void state_free(struct state *s)
{
	if (s->begun) {
		ok(cow_rewrite_end(s->begun, true));
		ck_pattern(data(s->rewritten), BLOCK, 5);
	}
	cow_storage_unref(s->rewritten);
	cow_storage_unref(s->plain);
	gate_free(&s->end);
	close(s->started[0]);
}

static void lives(void *arg)
{
	struct state *s = arg;
	bool fired = fault_disarm();

	fail_in_child_n = 0;
	state_check(s);
	memset(mut(s->shows), 7, BLOCK);
	ck_pattern(data(s->rewritten), BLOCK, 1);
	ok(cow_storages_write_intent(&s->rewritten, 1, COW_WRITE_ALL, NULL));
	memset(mut(s->rewritten), 8, BLOCK);
	ck_bytes(data(s->shows), BLOCK, 7);
	must(write(s->started[1], "", 1) == 1);
	gate_wait(&s->end);
	cow_trim();
	ck_bytes(data(s->rewritten), BLOCK, 8);
	ck_bytes(data(s->shows), BLOCK, 7);
	if (fired)
		_exit(FIRED);
}

/* -1: not on this file system. */
static int open_direct(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_DIRECT | O_CLOEXEC);

	must(fd >= 0 || errno == EINVAL);
	return fd;
}

/* One fork with the child's n-th call failing. True if there was one. */
static bool round_with(int n, int error, bool begins)
{
	int direct, status;
	struct state s;
	char started;
	pid_t pid;

	state_make(&s, begins);
	direct = open_direct();
	fail_in_child_n = n;
	fail_in_child_error = error;
	pid = child_start(lives, &s);
	fail_in_child_n = 0;
	state_check(&s);
	close(s.started[1]);
	must(read(s.started[0], &started, 1) >= 0);
	s.shows = cow_storage_unref(s.shows);
	cow_trim();
	ck_assert_msg(stats_now().bytes_limbo == 0, "call %d: the child has %lu bytes of ours", n,
	              (unsigned long)stats_now().bytes_limbo);
	gate_open(&s.end);
	status = child_status(pid);
	ck_assert_msg(WIFEXITED(status), "call %d: wait status %#x", n, status);
	status = WEXITSTATUS(status);
	ck_assert_msg(status == 0 || status == FIRED || (status == NO_MEMORY && n > 0),
	              "call %d: the child failed, status %d", n, status);
	ck_pattern(data(s.rewritten), BLOCK, 1);
	close(direct);
	state_free(&s);
	return status != 0;
}

/* `_i` also says whether a rewrite has begun. */
START_TEST(every_call_of_the_child)
{
	int error = errors[_i / 2], direct = open_direct(), n;
	struct footprint before, now;

	if (direct < 0)
		return;
	close(direct);
	ok(cow_option_set("helper", "no"));
	ok(cow_option_set("decay", "0"));
	must(!round_with(0, error, _i % 2));
	before = footprint_now();
	for (n = 1; round_with(n, error, _i % 2); n++) {
		sweep_renew();
		now = footprint_now();
		must(footprint_excess(&before, &now) == NULL);
		must(n < CALLS_MAX);
	}
	ck_assert_msg(error == FAULT_POOLS || n > 5, "only %d calls", n - 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_copied");
	TCase *tcase = add_case(suite, "fault_copied");

	tcase_add_loop_test(tcase, every_call_of_the_child, 0, 2 * rounds(ERRORS));
	return run_suite(suite);
}
