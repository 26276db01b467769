/* SPDX-License-Identifier: MIT */
/*
 * Random programs of one thread, against plain arrays
 *
 * As tests/core/test_model.c, with all that a storage can be and all that can be done with it: plain
 * bytes, sparse ones, typed elements, external memory, files, aliases and clones in other processes.
 * tests/support/model.h describes the programs. Errors are drawn, too: a call that must fail gives
 * the error that its header lists, and changes nothing.
 */
#include "tests/support/model.h"

#ifdef LONG_MODEL
enum { SEEDS = LONG_MODEL };
#else
enum { SEEDS = 20 };
#endif

static const struct {
	size_t largest;
	int steps, long_steps; /* of long_model.c: 6600 together, not shortened by any mode */
} plans[] = {
	{ 100, 1000, 2800 }, { 3 * PAGE, 1000, 2800 }, { 500000, 400, 700 },
	{ 3 * MIB, 200, 200 }, { 8 * MIB, 100, 100 },
};

static int steps_of(int plan)
{
#ifdef LONG_MODEL
	return plans[plan].long_steps;
#else
	return ROUNDS(plans[plan].steps);
#endif
}

START_TEST(random_program)
{
	static struct program p;
	int plan = _i % (int)COUNT(plans);
	int type = _i / (int)COUNT(plans) % 2 ? SOCK_SEQPACKET : SOCK_STREAM;

	program_begin(&p, _i, plans[plan].largest, type, NULL);
	program_steps(&p, steps_of(plan));
	program_end(&p);
	ck_assert_int_eq(elements_living(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share_model");

	model_seeds(add_case(suite, "model"), random_program, SEEDS);
	return run_suite(suite);
}
