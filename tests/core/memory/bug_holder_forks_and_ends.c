/* SPDX-License-Identifier: MIT */
/*
 * A holder that forked and ended between two looks took its child with it
 *
 * A process asked which relatives have a block, and then which of these live. One
 * that forked in between, and ended, was dead by then, and its child was not among
 * those who had been asked: the block's memory was given to somebody else.
 *
 * The program has a gate of its own, which lets the relative do so between the two.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "tests/support/support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static pid_t relative;
static struct gate fork_now, look_now, seen;
static unsigned char *block;

long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	pid_t wait_for = relative;
	siginfo_t info;

	if (nr == SYS_fcntl && b == F_OFD_SETLK && wait_for &&
	    ((const struct flock *)c)->l_type == F_WRLCK) {
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
	wrong = first_wrong(block, 4 * MIB, 1);
	gate_send(&seen, &wrong, sizeof(wrong));
	(void)arg;
}

static void forks_and_ends(void *arg)
{
	gate_wait(&fork_now);
	(void)child_start(looks_later, arg);
}

START_TEST(between_two_looks)
{
	unsigned char *other;
	size_t wrong;
	pid_t child;

	ok(cow_option_set("helper", "no"));
	gate_make(&fork_now);
	gate_make(&look_now);
	gate_make(&seen);
	block = new_block(4 * MIB, 0);
	fill(block, 4 * MIB, 1);
	child = child_start(forks_and_ends, NULL);
	cow_block_free(block);
	relative = child;
	cow_trim();
	must(relative == 0); /* it was asked */
	child_finish(child);
	other = new_block(4 * MIB, 0);
	fill(other, 4 * MIB, 2);
	gate_open(&look_now);
	gate_receive(&seen, &wrong, sizeof(wrong));
	ck_assert_uint_eq(wrong, 4 * MIB);
	cow_block_free(other);
	gate_free(&fork_now);
	gate_free(&look_now);
	gate_free(&seen);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("holder_forks_and_ends");
	TCase *tcase = add_case(suite, "holders");

	tcase_add_test(tcase, between_two_looks);
	return run_suite(suite);
}
