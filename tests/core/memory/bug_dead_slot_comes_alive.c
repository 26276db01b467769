/* SPDX-License-Identifier: MIT */
/*
 * A slot that was found dead got a new owner before its bits were cleared
 *
 * One process asked whose locks are still held, and acted on the answers for a
 * whole list of blocks. Meanwhile a relative forked a child into one of those
 * slots, and ended. The child's bits were cleared as those of a dead one, and
 * its pages were written by somebody who thought to be alone.
 *
 * The program has a gate of its own, which lets the relative do so between
 * the question and the thaw. Nothing thaws in a file while a relative has any part of it,
 * so the relative may also do so after the thaw that did not come.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "tests/support/support.h"

#include <signal.h>
#include <sys/wait.h>

static pid_t relative;
static struct gate fork_now, look_now, seen;
static unsigned char *first, *second;

long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	pid_t wait_for = relative;
	siginfo_t info;

	if (nr == SYS_unshare && wait_for) {
		relative = 0;
		gate_open(&fork_now);
		real_gate(SYS_waitid, P_PID, wait_for, (long)&info,
		          WEXITED | WNOWAIT, 0, 0);
	}
	return real_gate(nr, a, b, c, d, e, f);
}

static void looks_later(void *arg)
{
	size_t wrong;

	gate_wait(&look_now);
	wrong = first_wrong(second, 4 * MIB, 2);
	gate_send(&seen, &wrong, sizeof(wrong));
	(void)arg;
}

static void forks_and_ends(void *arg)
{
	cow_block_free(first);
	gate_open(&seen);
	gate_wait(&fork_now);
	(void)child_start(looks_later, arg);
}

static void ends(void *arg)
{
	(void)arg;
}

START_TEST(between_question_and_thaw)
{
	size_t wrong;
	pid_t child;

	gate_make(&fork_now);
	gate_make(&look_now);
	gate_make(&seen);
	first = new_block(4 * MIB, 0);
	second = new_block(4 * MIB, 0);
	fill(first, 4 * MIB, 1);
	fill(second, 4 * MIB, 2);
	child = child_start(forks_and_ends, NULL);
	gate_wait(&seen);
	in_child(ends, NULL); /* of its slot the relative knows nothing */
	relative = child;
	cow_trim();
	if (relative)
		gate_open(&fork_now);
	child_finish(child);
	fill(second, 4 * MIB, 3);
	gate_open(&look_now);
	gate_receive(&seen, &wrong, sizeof(wrong));
	ck_assert_uint_eq(wrong, 4 * MIB);
	cow_block_free(first);
	cow_block_free(second);
	gate_free(&fork_now);
	gate_free(&look_now);
	gate_free(&seen);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dead_slot_comes_alive");
	TCase *tcase = add_case(suite, "slots");

	tcase_add_test(tcase, between_question_and_thaw);
	return run_suite(suite);
}
