/* SPDX-License-Identifier: MIT */
/*
 * A relative that gave up privileges between two looks lost its pages
 *
 * Whoever gives pages back asks which relatives live, and then whether strangers may read the file.
 * The second answer was kept for all blocks of the file. A relative that left its family in between
 * counted neither as living nor as a stranger, so pages that it read were given back.
 *
 * The program has a gate of its own, which lets the relative leave between the two.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "tests/support/support.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool armed;
static struct gate drop_now, leave_now, did, look_now, seen;
static unsigned char *first, *second;

long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	if (nr == SYS_fcntl && b == F_OFD_SETLK && armed &&
	    ((const struct flock *)c)->l_type == F_WRLCK) {
		armed = false;
		gate_open(&leave_now);
		gate_wait(&did);
	}
	return real_gate(nr, a, b, c, d, e, f);
}

static void leaves(void *arg)
{
	/* With capabilities it would seal the file, and nobody could give its pages back. */
	struct __user_cap_header_struct who = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
	size_t wrong;

	must(syscall(SYS_capset, &who, none) == 0);
	gate_wait(&drop_now);
	cow_block_free(first);
	gate_open(&did);
	gate_wait(&leave_now);
	ok(cow_family_leave());
	gate_open(&did);
	gate_wait(&look_now);
	wrong = first_wrong(second, 4 * MIB, 2);
	gate_send(&seen, &wrong, sizeof(wrong));
	(void)arg;
}

START_TEST(between_two_looks)
{
	size_t wrong;
	pid_t child;

	ok(cow_option_set("helper", "no"));
	gate_make(&drop_now);
	gate_make(&leave_now);
	gate_make(&did);
	gate_make(&look_now);
	gate_make(&seen);
	first = new_block(4 * MIB, 0);
	second = new_block(4 * MIB, 0);
	fill(first, 4 * MIB, 1);
	fill(second, 4 * MIB, 2);
	child = child_start(leaves, NULL);
	cow_block_free(second); /* so the first one is looked at first */
	cow_block_free(first);
	gate_open(&drop_now);
	gate_wait(&did);
	armed = true;
	cow_trim();
	must(!armed); /* the child was asked for */
	gate_open(&look_now);
	gate_receive(&seen, &wrong, sizeof(wrong));
	ck_assert_uint_eq(wrong, 4 * MIB);
	child_finish(child);
	gate_free(&drop_now);
	gate_free(&leave_now);
	gate_free(&did);
	gate_free(&look_now);
	gate_free(&seen);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("left_between_two_looks");
	TCase *tcase = add_case(suite, "strangers");

	tcase_add_test(tcase, between_two_looks);
	return run_suite(suite);
}
