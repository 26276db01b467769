/* SPDX-License-Identifier: MIT */
/*
 * Test support: one operation, with each of its kernel calls failing in turn.
 * See the header.
 */
#include "tests/support/fault/sweep.h"
#include "core/cow/thaw.h"
#include "core/memory/state.h"
#include "memfd/pagemap.h"
#include "tests/support/fault/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_MAX = 2000 };

const int sweep_errors[SWEEP_ERRORS] = {
	ENOMEM, EAGAIN, EPERM, EINVAL, EMFILE, EBADF, FAULT_POOLS,
	FAULT_LASTING | ENOMEM, FAULT_LASTING | FAULT_POOLS,
};

static const int quick_errors[] = { ENOMEM, FAULT_POOLS, FAULT_LASTING | ENOMEM };

int sweep_rounds(size_t operations)
{
	bool quick = rounds(100) < 100;

	return (int)operations * (quick ? (int)COUNT(quick_errors) : SWEEP_ERRORS);
}

void sweep_add(struct herd *herd, enum herd_kind kind,
               struct cow_storage *storage, unsigned char *block, size_t bytes)
{
	struct animal *a = &herd->animals[kind];

	a->storage = storage;
	a->block = block;
	a->bytes = bytes;
	a->seed = 100 + (uint64_t)kind;
	fill(storage != NULL ? mut(storage) : block, bytes, a->seed);
}

void sweep_add_clone(struct herd *herd, enum herd_kind of, enum herd_kind kind,
                     struct cow_storage *clone)
{
	struct animal *a = &herd->animals[kind];

	*a = herd->animals[of];
	a->storage = clone;
	a->exposed = NULL;
}

static void (*at_end)(void);

void sweep_finish(void (*finish)(void))
{
	at_end = finish;
}

void sweep_thaw_chunk(const void *at)
{
	uintptr_t from = (uintptr_t)at;
	struct cow__tile *t;
	size_t copied;
	uint32_t kept;
	int r;

	cow__engine_lock();
	t = cow__tile_find(from);
	r = cow__thaw_tile_step(t, &from, cow__tile_end(t), SIZE_MAX, &copied);
	kept = t->map.nkept;
	cow__engine_unlock();
	ck_assert_int_eq(r, 0);
	ck_assert_uint_gt(kept, 0); /* parts are private, others are not */
}

void sweep_renew(void)
{
	cow_trim();
	cow__engine.no_collapse = false;
	cow__engine.no_memfd = false;
	cow__engine.no_locks = false;
	cow__engine.prefer_anon = false;
	cow__pagemap_use_scan(true);
}

static struct footprint settled_footprint(void)
{
	sweep_renew();
	return footprint_now();
}

static void check_footprint(const struct footprint *before, const char *name,
                            int n)
{
	struct footprint now = settled_footprint();
	const char *excess = footprint_excess(before, &now);

	/* Without the usual slack: the same was done before. */
	ck_assert_msg(excess == NULL, "%s, call %d: leaked %s", name, n,
	              excess);
	ck_assert_msg(now.fds <= before->fds,
	              "%s, call %d (system call %ld): %ld descriptors, not %ld",
	              name, n, fault_fired_nr(), now.fds, before->fds);
	/* One that could not be taken away is replaced when its addresses are
	 * used again. */
	ck_assert_msg(now.maps <= before->maps + 1,
	              "%s, call %d (system call %ld): %ld mappings, not %ld",
	              name, n, fault_fired_nr(), now.maps, before->maps);
}

/* One time through; 0 for `n`: without a failure. False: too few calls. */
static bool round_with(const struct operation *op, int n, int error)
{
	struct herd herd;
	bool fired;
	int r;

	memset(&herd, 0, sizeof(herd));
	op->prepare(&herd);
	herd_check(&herd);
	fault_after(n, error);
	r = op->call(&herd);
	fired = fault_disarm();
	herd_check(&herd);
	if (r < 0) {
		ck_assert_msg(fired, "%s gave %d: %s", op->name, r,
		              cow_last_error());
		r = op->call(&herd);
		ck_assert_msg(r >= 0,
		              "%s, call %d (system call %ld, error %d): the "
		              "second try gave %d: %s", op->name, n,
		              fault_fired_nr(), error, r, cow_last_error());
		herd_check(&herd);
	}
	herd_touch(&herd);
	herd_check(&herd);
	herd_rewrite(&herd, 1000, 2);
	herd_check(&herd);
	herd_rewrite(&herd, 2000, 1);
	herd_check(&herd);
	herd_free(&herd);
	if (at_end)
		at_end();
	at_end = NULL;
	return fired;
}

int sweep(const struct operation *op, int error)
{
	struct footprint before;
	int n;

	/* A helper would make calls of its own at any time. */
	ok(cow_option_set("helper", "no"));
	round_with(op, 0, error);
	sweep_renew();
	round_with(op, 0, error);
	before = settled_footprint();
	for (n = 1; round_with(op, n, error); n++) {
		check_footprint(&before, op->name, n);
		must(n < CALLS_MAX);
	}
	return n - 1;
}

void sweep_nth(const struct operation *operations, int i)
{
	int each = sweep_rounds(1);
	const struct operation *op = &operations[i / each];
	int error = each < SWEEP_ERRORS ? quick_errors[i % each]
	                                : sweep_errors[i % each];
	bool pools = (error & ~FAULT_LASTING) == FAULT_POOLS;
	bool calls = op->few == SWEEP_CALLS ||
	             (op->few == SWEEP_COLLAPSE &&
	              cow_feature_probe(COW_FEATURE_COLLAPSE, NULL, NULL) == 1);
	int n = sweep(op, error);

	/* What makes calls may find all metadata that it needs. */
	if (!pools)
		ck_assert_msg(n > 0 || !calls,
		              "%s makes no call that can fail", op->name);
	else
		ck_assert_msg(n > 0 || op->few != SWEEP_POOLS,
		              "%s wants nothing of pools", op->name);
	ck_assert_msg(n == 0 || op->few != SWEEP_NOTHING,
	              "%s makes %d calls that can fail", op->name, n);
}
