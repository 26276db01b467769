/* SPDX-License-Identifier: MIT */
/*
 * A child made by a bare system call read what its parent wrote later
 *
 * It runs no handlers, so nobody counts it as a holder. While memory was frozen
 * it inherited the frozen mappings all the same, and when the parent thawed
 * them, it read the parent's new bytes. It must crash on touching them instead.
 * MADV_DOFORK undid that: after a thaw such a child even wrote into its parent's
 * bytes.
 */
#include "core/program/advise.h"
#include "tests/support/support.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t raw_fork(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void check_crash(const unsigned char *p)
{
	pid_t pid = raw_fork();
	int status;

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(p[0]);
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void holds_on(void *arg)
{
	gate_wait(arg);
}

START_TEST(shared)
{
	unsigned char *p = new_block(4 * MIB, 0);

	fill(p, 4 * MIB, 1);
	check_crash(p);
	ck_pattern(p, 4 * MIB, 1);
	cow_block_free(p);
}
END_TEST

START_TEST(frozen_by_a_fork)
{
	unsigned char *p = new_block(4 * MIB, 0);
	struct gate gate;
	pid_t child;

	gate_make(&gate);
	fill(p, 4 * MIB, 1);
	child = child_start(holds_on, &gate);
	check_crash(p);
	gate_open(&gate);
	child_finish(child);
	gate_free(&gate);
	cow_block_free(p);
}
END_TEST

START_TEST(frozen_by_a_clone)
{
	struct cow_storage *a = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 1);
	struct cow_storage *b = lazy(a);

	check_crash(data(a));
	check_crash(data(b));
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

static void ends(void *arg)
{
	(void)arg;
}

/* In each state, and after the changes between them. */
START_TEST(advised)
{
	unsigned char *p = new_block(4 * MIB, 0);
	struct gate gate;
	pid_t child;

	gate_make(&gate);
	fill(p, 4 * MIB, 1);
	/* What was advised is anonymous memory from then on, and the kernel's affair. */
	ok(cow__advise((uintptr_t)p + 2 * MIB, 2 * MIB, MADV_DONTFORK));
	check_crash(p + 3 * MIB);
	ok(cow__advise((uintptr_t)p, 4 * MIB, MADV_DOFORK));
	check_crash(p);
	in_child(ends, NULL);
	cow_trim(); /* thaws */
	check_crash(p);
	child = child_start(holds_on, &gate);
	check_crash(p);
	ok(cow__advise((uintptr_t)p, 4 * MIB, MADV_DOFORK));
	check_crash(p);
	gate_open(&gate);
	child_finish(child);
	ck_pattern(p, 4 * MIB, 1);
	gate_free(&gate);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("raw_fork_reads_thawed_pages");
	TCase *tcase = add_case(suite, "raw_fork");

	tcase_add_test(tcase, shared);
	tcase_add_test(tcase, frozen_by_a_fork);
	tcase_add_test(tcase, frozen_by_a_clone);
	tcase_add_test(tcase, advised);
	return run_suite(suite);
}
