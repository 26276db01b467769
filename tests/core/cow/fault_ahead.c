/* SPDX-License-Identifier: MIT */
/*
 * Copying ahead and healing, with every kernel call failing in turn
 *
 * Whatever fails, every page has what was last written to it. When nothing fails any
 * more, all comes home. The steps of the helper are made by hand.
 */
#include "core/cow/ahead.h"
#include "core/cow/heal.h"
#include "core/memory/state.h"
#include "core/program/advise.h"
#include "memfd/pagemap.h"
#include "memfd/watch.h"
#include "tests/support/fault/fault.h"
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { PAGES = 3 * 512 };

static const size_t bytes = (size_t)PAGES * PAGE;
static const uint64_t second = 1000000000;
static const int errors[] = { ENOMEM, EPERM, FAULT_LASTING | ENOMEM,
	                      FAULT_LASTING | EMFILE };

static uint32_t model[PAGES];
static unsigned char *p;

static uint32_t *number(size_t page)
{
	return (uint32_t *)(void *)(p + page * PAGE + PAGE / 2);
}

static void check_model(void)
{
	for (size_t page = 0; page < PAGES; page++)
		must(*number(page) == model[page]);
}

static void write_pages(size_t from, size_t to, uint32_t value)
{
	for (size_t page = from; page < to; page++)
		*number(page) = model[page] = value + (uint32_t)page;
}

static void looks(void *arg)
{
	(void)arg;
	check_model();
}

static void use_all(void)
{
	cow__engine.no_collapse = cow__engine.no_memfd = false;
	cow__pagemap_use_scan(true);
	cow__watch_use(true);
}

/* A block whose pages are copies, but for some; with `emptied`, a part was emptied. */
static void make(bool emptied)
{
	use_all();
	p = new_block(bytes, COW_BLOCK_ZERO);
	write_pages(0, PAGES, 1);
	in_child(looks, NULL);
	write_pages(100, 1200, 2);
	if (emptied) {
		ok(cow__advise((uintptr_t)p + 600 * PAGE, 50 * PAGE, MADV_DONTNEED));
		memset(&model[600], 0, 50 * sizeof(*model));
		write_pages(610, 612, 9);
	}
}

static unsigned copy_ahead(void)
{
	int n;

	cow__engine_lock();
	cow__watch_keep();
	n = cow__ahead_prepare(10 * second);
	cow__engine_unlock();
	return n < 0 ? 0 : (unsigned)n;
}

static void heal(void)
{
	cow__engine_lock();
	cow__heal(UINT64_MAX);
	cow__engine_unlock();
}

/* All that a round does. `n`: this call fails, in the part `where` of it. */
static bool fails_at(int n, int error, int where)
{
	bool fired = false;

	for (int step = 0; step < 3; step++) {
		if (step == where)
			fault_after(n, error);
		if (step == 2)
			heal();
		else
			copy_ahead();
		if (step == where)
			fired = fault_disarm();
		/* The second time, chunks of the first are ready. */
		write_pages(700 + 100 * (size_t)step, 790 + 100 * (size_t)step, 3);
		check_model();
	}
	return fired;
}

/* `_i`: the error, and whether a part was emptied. */
START_TEST(every_call_fails)
{
	int error = errors[_i / 2];
	bool fired;

	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	for (int where = 0; where < 3; where++) {
		fired = true;
		for (int n = 1; fired; n++) {
			make(_i % 2);
			fired = fails_at(n, error, where);
			use_all();
			/* Memory that may be under I/O is left alone for a second. */
			cow__heal_child();
			heal();
			check_model();
			if (!UNDER_TSAN)
				ck_assert(cow__tile_find((uintptr_t)p)->map.backing ==
				          COW__SHARED);
			in_child(looks, NULL);
			check_model();
			cow_block_free(p);
			cow__watch_forget();
		}
		ck_assert(where != 2 || !fired);
	}
}
END_TEST

/* Kernels and sandboxes without it. */
START_TEST(denied)
{
	static const long calls[] = { SYS_userfaultfd, SYS_ioctl };

	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	fault_deny(calls[_i], FAULT_ANY, 0, _i ? EINVAL : EPERM);
	make(false);
	ck_assert_uint_eq(copy_ahead(), 0);
	ck_assert_uint_gt(fault_denials(), 0);
	ck_assert(!cow__ahead_usable());
	check_model();
	heal();
	check_model();
	if (!UNDER_TSAN)
		ck_assert(cow__tile_find((uintptr_t)p)->map.backing == COW__SHARED);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_ahead");
	TCase *tcase = add_case(suite, "fault_ahead");

	tcase_add_loop_test(tcase, every_call_fails, 0, 2 * (int)COUNT(errors));
	tcase_add_loop_test(tcase, denied, 0, 2);
	return run_suite(suite);
}
