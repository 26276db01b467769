/* SPDX-License-Identifier: MIT */
/*
 * A fork while another thread's copy ends
 *
 * Whose storage was on its copy already, but still counted as one that copies: in the
 * child the copy was freed under it. Or it no longer counted, but had not said so: who
 * took the source over in the child waited for ever.
 */
#include "tests/support/support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 * MIB, FORKS = 300 };

static struct cow_storage *source, *copied;
static bool stop;

static void *copies(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		struct cow_storage *s;
		void *p;

		ok(cow_storage_lazy_clone(source, &s));
		__atomic_store_n(&copied, s, __ATOMIC_RELEASE);
		ok(cow_storage_data_mut_range(s, 0, BYTES, COW_WRITE_BY_COPY, &p));
		__atomic_store_n(&copied, NULL, __ATOMIC_RELEASE);
		cow_storage_unref(s);
	}
	return unused;
}

static void looks(void)
{
	struct cow_storage *s = __atomic_load_n(&copied, __ATOMIC_ACQUIRE);
	void *p;

	alarm(10);
	if (s) {
		ck_pattern(data(s), BYTES, 1);
		cow_storage_unref(s);
	}
	/* It may be the last one now. */
	ok(cow_storage_data_mut(source, &p));
	ck_pattern(p, BYTES, 1);
	_exit(0);
}

START_TEST(the_child_has_all_or_nothing)
{
	pthread_t thread;
	int status;
	pid_t child;

	source = new_filled(BYTES, 0, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, copies, NULL), 0);
	for (int i = 0; i < FORKS; i++) {
		child = fork();
		must(child >= 0);
		if (child == 0)
			looks();
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	cow_storage_unref(source);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_fork_as_a_copy_ends");
	TCase *tcase = add_case(suite, "regress");

	tcase_add_test(tcase, the_child_has_all_or_nothing);
	return run_suite(suite);
}
