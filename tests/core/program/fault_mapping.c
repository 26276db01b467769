/* SPDX-License-Identifier: MIT */
/*
 * The program's own mappings, with every kernel call failing in turn
 *
 * What must hold is in tests/support/fault/sweep.h: above all, a munmap that
 * fails has taken nothing away.
 */
#include "core/program/advise.h"
#include "core/memory/attribute.h"
#include "core/program/mapping.h"
#include "memfd/map.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { BYTES = 8 << 20, HEAD = 3 << 20, BOTH = 3 /* PROT_READ | PROT_WRITE */ };

static int map(struct herd *herd)
{
	void *p = SWEEP_UNTOUCHED;
	int r = cow__mapping_new(BYTES, BOTH, &p);

	if (r < 0)
		must(p == SWEEP_UNTOUCHED);
	else
		sweep_add(herd, HERD_BLOCK, NULL, p, BYTES);
	return r;
}

static void init(struct herd *herd)
{
	static bool parted;
	uintptr_t start;

	(void)herd;
	if (!parted)
		ck_assert_int_eq(cow__mapping_init(&start), 0);
	parted = true;
}

static void mapped(struct herd *herd)
{
	init(herd);
	ck_assert_int_eq(map(herd), 0);
}

/* So that its parts can't be cut out. */
static void locked(struct herd *herd)
{
	mapped(herd);
	ck_assert_int_eq(cow__lock_pages((uintptr_t)herd->animals[HERD_BLOCK].block,
	                                 PAGE, 0), 0);
}

static void nothing(void *arg)
{
	(void)arg;
}

static int unmap_tail(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_BLOCK];
	int r = cow__unmap((uintptr_t)a->block + HEAD, BYTES - HEAD);

	if (r == 0)
		a->bytes = HEAD;
	return r;
}

static int unmap_all(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_BLOCK];
	int r = cow__unmap((uintptr_t)a->block, BYTES);

	if (r == 0)
		a->block = NULL;
	return r;
}

static uintptr_t at; /* where something was */
static int refusal;

static void unmapped(struct herd *herd)
{
	void *p;

	init(herd);
	ck_assert_int_eq(cow__mapping_new(BYTES, BOTH, &p), 0);
	fill(p, BYTES, 1);
	at = (uintptr_t)p;
	ck_assert_int_eq(cow__unmap(at, BYTES), 0);
}

static bool map_anonymous(void *arg)
{
	(void)arg;
	refusal = cow__map_anon(at, BYTES, false);
	return refusal == 0;
}

static int map_again(struct herd *herd)
{
	int r = cow__overmap(at, BYTES, 0, map_anonymous, NULL);

	if (r == 0)
		r = refusal;
	if (r == 0)
		sweep_add(herd, HERD_BLOCK, NULL, (unsigned char *)at, BYTES);
	return r;
}

static void undumped(struct herd *herd)
{
	mapped(herd);
	ok(cow__advise((uintptr_t)herd->animals[HERD_BLOCK].block, BYTES,
	               MADV_DONTDUMP));
}

/* What is noted goes on behind this part: that takes two more notes. */
static int dump_a_part(struct herd *herd)
{
	uintptr_t p = (uintptr_t)herd->animals[HERD_BLOCK].block, end = p + BYTES;
	int r = cow__advise(p + PAGE, PAGE, MADV_DODUMP);

	ck_assert_int_eq(cow__attribute_at(cow__tile_find(p), COW__ATTRIBUTE_DUMP, 0,
	                                   p + 2 * PAGE, &end),
	                 MADV_DONTDUMP);
	return r;
}

/* It can't grow in one piece. */
static void cut_and_frozen(struct herd *herd)
{
	mapped(herd);
	ck_assert_int_eq(unmap_tail(herd), 0);
	in_child(nothing, NULL);
}

static int grow(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_BLOCK];
	int r = cow__mapping_grow((uintptr_t)a->block, HEAD, BYTES);

	must(r == 0 || r == -ENOMEM || r == -EFAULT); /* answers of mremap() */
	for (size_t i = HEAD; r == 0 && i < BYTES; i += PAGE)
		must(((unsigned char *)a->block)[i] == 0);
	/* Its parts are blocks of their own, which the herd does not know. */
	if (r == 0)
		ck_assert_int_eq(unmap_tail(herd), 0);
	return r;
}

static const struct operation operations[] = {
	{ "map", init, map },
	{ "unmap the tail", mapped, unmap_tail, SWEEP_COLLAPSE },
	{ "unmap the tail of a locked one", locked, unmap_tail },
	{ "unmap all", mapped, unmap_all, SWEEP_COLLAPSE },
	{ "unmap all of a locked one", locked, unmap_all },
	{ "map where nothing is any more", unmapped, map_again },
	{ "grow in parts", cut_and_frozen, grow },
	{ "dump a part of what is not dumped", undumped, dump_a_part },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
}
END_TEST

/* What was to move away and could not is memory as before: emptied, it is zero, not what
 * lies under it. */
START_TEST(a_move_is_denied)
{
	unsigned char *p = new_block(BYTES, 0);

	fill(p, BYTES, 1);
	fault_deny(SYS_mremap, FAULT_ANY, 0, EPERM);
	ck_assert_int_eq(cow__own((uintptr_t)p + MIB, MIB, COW__OWN_TO_MOVE), -EPERM);
	must(fault_denials() > 0);
	ck_pattern(p, BYTES, 1);
	ok(cow__advise((uintptr_t)p + MIB, MIB, MADV_DONTNEED));
	for (size_t i = 0; i < MIB; i++)
		must(p[MIB + i] == 0);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_mapping");
	TCase *tcase = add_case(suite, "fault_mapping");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	tcase_add_test(tcase, a_move_is_denied);
	return run_suite(suite);
}
