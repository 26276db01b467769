/* SPDX-License-Identifier: MIT */
/*
 * Clones and materializing, with every kernel call failing in turn
 *
 * What must hold is in tests/support/fault/sweep.h. Nothing here has to fail:
 * where a mapping is refused, a copy serves. But half a freeze, half a view or
 * half a thaw must show in no byte, neither now nor when both sides are
 * written later.
 */
#include "tests/support/fault/sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One page in 64, and as a run what lies behind the middle. */
static void write_some(struct animal *a, unsigned char *to)
{
	unsigned char *copy = malloc(a->bytes);
	size_t at;

	must(copy != NULL);
	memcpy(copy, to, a->bytes);
	for (at = 0; at < a->bytes / 2; at += 64 * PAGE)
		memcpy(to + at, copy + at, PAGE);
	memcpy(to + a->bytes / 2, copy + a->bytes / 2, a->bytes / 8);
	free(copy);
}

static void tracked(struct herd *herd)
{
	sweep_add(herd, HERD_OWNED, new_storage(2 * MIB + 9 * PAGE, 0), NULL, 2 * MIB + 9 * PAGE);
}

static void lazy_pair(struct herd *herd)
{
	tracked(herd);
	sweep_add_clone(herd, HERD_OWNED, HERD_VIEW,
	                lazy(herd->animals[HERD_OWNED].storage));
}

static void view(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_VIEW];

	lazy_pair(herd);
	write_some(a, mut_range(a->storage, 0, 1, COW_WRITE_BY_PAGE));
}

/* A view with copied pages, shared lazily: the next view needs a layer. */
static void shared_view(struct herd *herd)
{
	view(herd);
	sweep_add_clone(herd, HERD_VIEW, HERD_LAZY_A,
	                lazy(herd->animals[HERD_VIEW].storage));
}

/* The last user of frozen pages, who may write in place again. */
static void lonely_view(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_OWNED];

	view(herd);
	a->storage = cow_storage_unref(a->storage);
}

static void transparent(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_CLONED];

	sweep_add(herd, HERD_CLONED,
	          new_storage(2 * MIB + 9 * PAGE, COW_STORAGE_TRANSPARENT), NULL, 2 * MIB + 9 * PAGE);
	a->exposed = expose(a->storage);
}

/* Large enough for its page tables to be moved at a freeze. */
static void large(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_CLONED];

	sweep_add(herd, HERD_CLONED,
	          new_storage(32 * MIB + PAGE, COW_STORAGE_TRANSPARENT), NULL,
	          3 * MIB);
	a->exposed = expose(a->storage);
}

/* Two with a gap of less than 2 MiB behind each. */
static void neighbours(struct herd *herd)
{
	static const enum herd_kind kinds[2] = { HERD_CLONED, HERD_TRANSPARENT };

	for (int i = 0; i < 2; i++) {
		struct animal *a = &herd->animals[kinds[i]];

		sweep_add(herd, kinds[i], new_apart(2 * MIB + 9 * PAGE), NULL,
		          2 * MIB + 9 * PAGE);
		a->exposed = expose(a->storage);
	}
}

static void rewritten_neighbours(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_CLONED], *b = &herd->animals[HERD_TRANSPARENT];
	struct cow_storage *from[2], *to[2];

	neighbours(herd);
	from[0] = a->storage;
	from[1] = b->storage;
	ok(cow_storages_lazy_clone(from, 2, NULL, to));
	ok(cow_storages_write_intent(from, 2, COW_WRITE_AUTO, NULL));
	cow_storage_unref(to[0]);
	cow_storage_unref(to[1]);
}

static void cloned(struct herd *herd)
{
	transparent(herd);
	sweep_add_clone(herd, HERD_CLONED, HERD_CLONE,
	                lazy(herd->animals[HERD_CLONED].storage));
}

/* Written since its first clone: the next one needs a layer. */
static void written(struct herd *herd)
{
	cloned(herd);
	write_some(&herd->animals[HERD_CLONED],
	           herd->animals[HERD_CLONED].exposed);
}

/* And that on a layer, as if the writer had come between. */
static void layered(struct herd *herd)
{
	written(herd);
	sweep_add_clone(herd, HERD_CLONED, HERD_COPY,
	                lazy(herd->animals[HERD_CLONED].storage));
	write_some(&herd->animals[HERD_CLONED],
	           herd->animals[HERD_CLONED].exposed);
}

/* Without a helper, any call of the library may heal what is frozen, at its own time. The scenes
 * are about frozen memory, so only this call heals here (every_call_fails). */
static int heal_and_trim(void)
{
	int r;

	ok(cow_option_set("heal", "3"));
	r = cow_trim();
	ok(cow_option_set("heal", "0"));
	return r < 0 ? -EIO : 0;
}

/* Frozen and written, and the clone is gone: to be thawed. */
static void abandoned(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_CLONE];

	written(herd);
	a->storage = cow_storage_unref(a->storage);
}

/* The same, all thawed: nothing is left to do. */
static void thawed(struct herd *herd)
{
	abandoned(herd);
	fill(herd->animals[HERD_CLONED].exposed, 2 * MIB,
	     herd->animals[HERD_CLONED].seed);
	ok(heal_and_trim());
}

/* The same, healed in part: `chunk` is shared again, the others are still private, some with
 * copied pages. Every part begins and ends in the middle of the extent, or not. */
static void partly_thawed(struct herd *herd, int chunk)
{
	struct animal *a = &herd->animals[HERD_CLONED], *clone = &herd->animals[HERD_CLONE];
	const size_t bytes = 4 * MIB + 9 * PAGE;

	sweep_add(herd, HERD_CLONED, new_storage(bytes, COW_STORAGE_TRANSPARENT), NULL, bytes);
	a->exposed = expose(a->storage);
	sweep_add_clone(herd, HERD_CLONED, HERD_CLONE, lazy(a->storage));
	write_some(a, a->exposed);
	clone->storage = cow_storage_unref(clone->storage);
	sweep_thaw_chunk(a->exposed + (size_t)chunk * 2 * MIB);
}

static void first_thawed(struct herd *herd)
{
	partly_thawed(herd, 0);
}

static void middle_thawed(struct herd *herd)
{
	partly_thawed(herd, 1);
}

static int clone_of(struct herd *herd, enum herd_kind kind, enum herd_kind to)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_lazy_clone(herd->animals[kind].storage, &s);

	if (r < 0)
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
	else
		sweep_add_clone(herd, kind, to, s);
	return r;
}

static int clone_transparent(struct herd *herd)
{
	return clone_of(herd, HERD_CLONED, HERD_LAZY_B);
}

static int clone_two(struct herd *herd)
{
	struct cow_storage *from[2] = {
		herd->animals[HERD_CLONED].storage,
		herd->animals[HERD_CLONED].storage,
	};
	struct cow_storage *to[2] = { SWEEP_UNTOUCHED, SWEEP_UNTOUCHED };
	uint64_t copied = 77;
	int r = cow_storages_lazy_clone(from, 2, &copied, to);

	if (r < 0) {
		ck_assert_ptr_null(to[0]);
		ck_assert_ptr_null(to[1]);
		ck_assert_uint_eq(copied, 77);
		return r;
	}
	sweep_add_clone(herd, HERD_CLONED, HERD_LAZY_B, to[0]);
	sweep_add_clone(herd, HERD_CLONED, HERD_COPY, to[1]);
	return 0;
}

static int clone_neighbours(struct herd *herd)
{
	struct cow_storage *from[2] = {
		herd->animals[HERD_CLONED].storage,
		herd->animals[HERD_TRANSPARENT].storage,
	};
	struct cow_storage *to[2];
	int r = cow_storages_lazy_clone(from, 2, NULL, to);

	if (r < 0) {
		ck_assert_ptr_null(to[0]);
		ck_assert_ptr_null(to[1]);
		return r;
	}
	sweep_add_clone(herd, HERD_CLONED, HERD_LAZY_B, to[0]);
	sweep_add_clone(herd, HERD_TRANSPARENT, HERD_COPY, to[1]);
	return 0;
}

static int clone_eagerly(struct herd *herd)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_clone(herd->animals[HERD_OWNED].storage, &s);

	if (r < 0)
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
	else
		sweep_add_clone(herd, HERD_OWNED, HERD_COPY, s);
	return r;
}

static int write_to(struct herd *herd, enum herd_kind kind, size_t offset,
                    size_t bytes, enum cow_write_hint hint)
{
	struct animal *a = &herd->animals[kind];
	void *at = SWEEP_UNTOUCHED;
	int r = cow_storage_data_mut_range(a->storage, offset, bytes, hint,
	                                   &at);

	if (r < 0) {
		ck_assert_int_eq(r, -ENOMEM); /* the contract knows no other */
		ck_assert_ptr_eq(at, SWEEP_UNTOUCHED);
		return r;
	}
	ck_assert_ptr_eq(at, data(a->storage));
	if (hint != COW_WRITE_ALL)
		ck_pattern(at, a->bytes, a->seed);
	fill(at, a->bytes, ++a->seed);
	return 0;
}

static int write_by_page(struct herd *herd)
{
	return write_to(herd, HERD_VIEW, 0, 2 * MIB + 9 * PAGE, COW_WRITE_BY_PAGE);
}

static int write_by_copy(struct herd *herd)
{
	return write_to(herd, HERD_VIEW, 0, 2 * MIB + 9 * PAGE, COW_WRITE_BY_COPY);
}

static int write_all(struct herd *herd)
{
	return write_to(herd, HERD_VIEW, 0, 2 * MIB + 9 * PAGE, COW_WRITE_ALL);
}

static int write_as_it_comes(struct herd *herd)
{
	return write_to(herd, HERD_VIEW, 5 * PAGE, PAGE, COW_WRITE_AUTO);
}

static int expose_view(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_VIEW];
	void *at = SWEEP_UNTOUCHED;
	int r = cow_storage_expose(a->storage, &at);

	if (r < 0) {
		ck_assert_ptr_eq(at, SWEEP_UNTOUCHED);
		return r;
	}
	a->exposed = at;
	return 0;
}

static int swap_view(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_VIEW];
	static unsigned char heap[20000];
	struct cow_data_ptr ptr = cow_data_ptr_make(
		heap, NULL, NULL, (struct cow_device){ COW_DEVICE_CPU, 0 });
	int r;

	fill(heap, sizeof(heap), 77);
	r = cow_storage_swap_data_ptr(a->storage, &ptr, sizeof(heap));
	if (r < 0) {
		ck_assert_ptr_eq(ptr.data, heap);
		return r;
	}
	ck_pattern(ptr.data, a->bytes, a->seed);
	fill(ptr.data, a->bytes, 78);
	cow_data_ptr_clear(&ptr);
	a->bytes = sizeof(heap);
	a->seed = 77;
	return 0;
}

/* The address is as before, and so are the bytes, whatever failed. */
static int intent(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_CLONED];
	struct cow_range range = { a->exposed, a->bytes };
	int r = cow_write_intent(&range, 1, COW_WRITE_AUTO, NULL);

	ck_assert_int_eq(r, 0);
	if (!cow_is_frozen())
		ck_assert_uint_eq(info_of(a->storage).frozen, 0);
	ck_pattern(a->exposed, a->bytes, a->seed);
	fill(a->exposed, a->bytes, ++a->seed);
	return 0;
}

static int intent_all(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_CLONED];

	ck_assert_int_eq(cow_storages_write_intent(&a->storage, 1, COW_WRITE_ALL, NULL), 0);
	fill(a->exposed, a->bytes, ++a->seed);
	return 0;
}

/* The new bytes are on other pages, or the call refuses and nothing has changed. */
static int elsewhere(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_CLONED];
	struct cow_range range = { a->exposed, a->bytes };
	struct cow_rewrite *w;
	void *at;
	int r;

	r = cow_rewrite_begin(&range, &at, &w);
	ck_pattern(a->exposed, a->bytes, a->seed);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	fill(at, a->bytes, ++a->seed);
	ck_assert_int_eq(cow_rewrite_end(w, true), 0);
	ck_pattern(a->exposed, a->bytes, a->seed);
	return 0;
}

/* Rewritten in bulk: the next time its own pages are spare. */
static void rewritten(struct herd *herd)
{
	struct animal *clone = &herd->animals[HERD_CLONE];

	cloned(herd);
	(void)intent(herd);
	clone->storage = cow_storage_unref(clone->storage);
	sweep_add_clone(herd, HERD_CLONED, HERD_CLONE,
	                lazy(herd->animals[HERD_CLONED].storage));
}

static int free_source(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_CLONED];

	a->storage = cow_storage_unref(a->storage);
	a->exposed = NULL;
	return 0;
}

static int free_view(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_VIEW];

	a->storage = cow_storage_unref(a->storage);
	return 0;
}

static int trim(struct herd *herd)
{
	(void)herd;
	return heal_and_trim();
}

static const struct operation operations[] = {
	{ "eager clone", tracked, clone_eagerly },
	{ "clone transparent", transparent, clone_transparent },
	{ "clone large", large, clone_transparent },
	{ "clone two", large, clone_two },
	{ "clone neighbours", neighbours, clone_neighbours },
	{ "clone rewritten neighbours", rewritten_neighbours, clone_neighbours },
	{ "clone written", written, clone_transparent },
	{ "clone layered", layered, clone_transparent },
	{ "clone thawed", thawed, clone_transparent },
	{ "clone first thawed", first_thawed, clone_transparent },
	{ "clone middle thawed", middle_thawed, clone_transparent },
	{ "by page", lazy_pair, write_by_page },
	{ "by copy", lazy_pair, write_by_copy },
	{ "write all", lazy_pair, write_all },
	{ "as it comes", lazy_pair, write_as_it_comes },
	{ "by page of a view", shared_view, write_by_page },
	{ "by copy of a view", shared_view, write_by_copy },
	{ "steal and thaw", lonely_view, write_as_it_comes },
	{ "expose lazy", lazy_pair, expose_view },
	{ "expose shared view", shared_view, expose_view },
	{ "expose lonely view", lonely_view, expose_view },
	{ "swap lazy", lazy_pair, swap_view },
	{ "swap shared view", shared_view, swap_view },
	{ "thaw", abandoned, trim },
	{ "thaw the rest", first_thawed, trim },
	{ "thaw the ends", middle_thawed, trim },
	{ "free middle thawed", middle_thawed, free_source },
	{ "free source", written, free_source },
	{ "free last view", lonely_view, free_view },
	{ "intent", cloned, intent },
	{ "intent of what was written", layered, intent },
	{ "intent for all", cloned, intent_all },
	{ "elsewhere", cloned, elsewhere },
	{ "elsewhere again", rewritten, elsewhere },
	{ "intent of what nobody reads", abandoned, intent },
	{ "second intent", rewritten, intent },
	{ "clone rewritten", rewritten, clone_transparent },
	{ "free rewritten", rewritten, free_source },
	{ "trim rewritten", rewritten, trim },
};

START_TEST(every_call_fails)
{
	ok(cow_option_set("heal", "0"));
	sweep_nth(operations, _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_clone");
	TCase *tcase = add_case(suite, "fault_clone");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	return run_suite(suite);
}
