/* SPDX-License-Identifier: MIT */
/*
 * Probes of the kernel, with each of their calls failing
 *
 * A probe answers "no" then, or finds the same by other calls. It leaves no descriptor and no
 * mapping (add_case() counts them), and the next probe answers as ever.
 */
#include "memfd/map.h"
#include "memfd/probe.h"
#include "tests/support/fault/fault.h"
#include "tests/support/support.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* add_case() allows a few descriptors and mappings more. So each call fails AGAIN times. */
enum { CALLS_MAX = 60, AGAIN = 20 };

static const struct probe {
	const char *name;
	bool (*probe)(void);
	bool no; /* it answers "no" if all calls fail */
} probes[] = {
	{ "memfd", cow__probe_memfd, true },
	{ "locks", cow__probe_locks, true },
	{ "collapse", cow__probe_collapse, true },
	{ "pagemap", cow__probe_pagemap, true },
	{ "pagemap_scan", cow__probe_pagemap_scan, true },
	{ "threads", cow__probe_threads, true },
	{ "unshare", cow__probe_unshare, true },
	{ "io_uring", cow__probe_io_uring, true },
	{ "userfaultfd", cow__probe_userfaultfd, true },
	{ "slow memfds", cow__probe_slow_memfds, false },
	{ "charges", cow__probe_charges, true },
};

static const int errors[] = { ENOMEM, EMFILE, EPERM, ENOSYS, FAULT_LASTING | ENOMEM,
	                      FAULT_LASTING | EMFILE, FAULT_LASTING | ENOSYS };

static void fail_each_call(const struct probe *p, int error)
{
	bool there = p->probe(), fired = true, answer;
	int n;

	for (n = 1; fired; n++) {
		for (int i = 0; i < AGAIN && fired; i++) {
			fault_after(n, error);
			answer = p->probe();
			fired = fault_disarm();
		}
		ck_assert_msg(fired || answer == there, "%s says otherwise", p->name);
		if (fired && n == 1 && error & FAULT_LASTING)
			ck_assert_msg(!answer || !p->no, "%s is there without the kernel", p->name);
		ck_assert_msg(p->probe() == there, "%s says otherwise after call %d (%ld)",
		              p->name, n, fault_fired_nr());
		ck_assert_int_lt(n, CALLS_MAX);
	}
	ck_assert_int_gt(n, 2);
}

START_TEST(each_call_fails)
{
	fail_each_call(&probes[_i / (int)COUNT(errors)], errors[_i % (int)COUNT(errors)]);
}
END_TEST

enum { ADVICE = 25 /* MADV_COLLAPSE */ };

static const int refusals[] = { EINVAL, EPERM, ENOSYS };

static void deny_huge_pages(int error)
{
	/* Nobody reads shmem_enabled then: "within_size" would make memfds fast, too. */
	fault_deny(SYS_openat, FAULT_ANY, 0, ENOENT);
	fault_deny(SYS_madvise, 2, ADVICE, error);
}

/* Memfds are slow if they get no huge pages and their page tables can't be moved. */
START_TEST(slow)
{
	enum { COLLAPSE = 1, MOVES = 2 };
	bool fast = (_i & COLLAPSE && madvise(NULL, 0, ADVICE) == 0) ||
	            (_i & MOVES && page_tables_move());

	if (_i & COLLAPSE)
		fault_deny(SYS_openat, FAULT_ANY, 0, ENOENT);
	else
		deny_huge_pages(refusals[_i / 4]);
	if (!(_i & MOVES))
		fault_deny(SYS_mremap, FAULT_ANY, 0, EINVAL);
	ck_assert_int_eq(cow__probe_slow_memfds(), !fast);
}
END_TEST

/* No error says that advice was not followed. */
START_TEST(advice_is_ignored)
{
	fault_deny(SYS_madvise, FAULT_ANY, 0, FAULT_IGNORED);
	ck_assert(!cow__map_knows_collapse());
	fault_deny(SYS_openat, FAULT_ANY, 0, ENOENT);
	fault_deny(SYS_mremap, FAULT_ANY, 0, EINVAL);
	ck_assert(cow__probe_slow_memfds());
}
END_TEST

/* Without huge pages a mapping is moved, to see whether that works. */
START_TEST(each_call_of_a_move_fails)
{
	const struct probe moves = { "moves", cow__probe_slow_memfds, false };

	deny_huge_pages(EINVAL);
	fail_each_call(&moves, errors[_i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_probe");
	TCase *tcase = add_case(suite, "fault_probe");

	tcase_add_loop_test(tcase, each_call_fails, 0, (int)(COUNT(probes) * COUNT(errors)));
	tcase_add_loop_test(tcase, slow, 0, 4 * (int)COUNT(refusals));
	tcase_add_test(tcase, advice_is_ignored);
	tcase_add_loop_test(tcase, each_call_of_a_move_fails, 0, (int)COUNT(errors));
	return run_suite(suite);
}
