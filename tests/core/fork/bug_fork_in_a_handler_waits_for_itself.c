/* SPDX-License-Identifier: MIT */
/*
 * fork in a signal handler that interrupted the library where it makes an object
 *
 * The fork waited for a lock that its own thread had. Now the child lacks the engine's
 * memory, as it does if the engine itself was interrupted. Its counters begin with what there
 * was at its fork, and not at an earlier one.
 */
#include "core/base/pool.h"
#include "tests/support/support.h"

#include <sys/wait.h>
#include <unistd.h>

static void does_nothing(void *unused)
{
	(void)unused;
}

START_TEST(it_goes_on)
{
	static struct cow__pool pool = { .object_bytes = 64 };
	struct cow_stats then;
	int status;
	pid_t child;
	void *p;

	in_child(does_nothing, NULL);
	p = new_block(4 * MIB, 0);
	then = stats_now();
	ck_assert_ptr_ne(cow__pool_take(&pool), NULL);
	cow__mutex_lock(&pool.lock);
	child = fork();
	if (child == 0)
		_exit(stats_now().bytes_live == then.bytes_live &&
		                      stats_now().bytes_inherited == then.bytes_live
		              ? 5
		              : 6);
	cow__mutex_unlock(&pool.lock);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), 5);
	/* And the next one is an ordinary one. */
	in_child(does_nothing, NULL);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_fork_in_a_handler_waits_for_itself");
	TCase *tcase = add_case(suite, "regress");

	tcase_add_test(tcase, it_goes_on);
	return run_suite(suite);
}
