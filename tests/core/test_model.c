/* SPDX-License-Identifier: MIT */
/*
 * Random programs against a model that cannot be wrong
 *
 * The model of a storage is an array of its own. A program is a random sequence
 * of everything one can do with storages; after each step the storage that was
 * touched, and now and then all of them, must equal its array. What one storage
 * does must never show in another: that is the whole promise.
 *
 * Some storages get exposed on the way, and are then written through the old
 * pointer without a word to the library. Now and then the program forks; the
 * child goes on by itself and the parent must notice nothing.
 *
 * A failure prints seed, step and operation; the same seed repeats it.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 10, SEEDS = 6 };

struct slot {
	struct cow_storage *storage; /* NULL: free */
	unsigned char *model;
	size_t bytes;
	unsigned char *exposed; /* where to write without notice */
};

struct program {
	struct slot slots[SLOTS];
	struct prng prng;
	size_t largest;
	int seed, step;
	const char *doing;
};

static size_t draw(struct program *p, size_t limit)
{
	return prng_below(&p->prng, limit);
}

/* Mostly of the order of the largest, sometimes tiny. */
static size_t draw_bytes(struct program *p)
{
	return 1 + draw(p, draw(p, 4) ? p->largest : p->largest / 64 + 1);
}

static void check_slot(struct program *p, const struct slot *slot)
{
	const unsigned char *bytes = data(slot->storage);
	size_t i;

	ck_assert_uint_eq(cow_storage_bytes(slot->storage), slot->bytes);
	if (slot->exposed != NULL)
		ck_assert_ptr_eq(bytes, slot->exposed);
	if (memcmp(bytes, slot->model, slot->bytes) == 0)
		return;
	for (i = 0; bytes[i] == slot->model[i]; i++)
		;
	ck_abort_msg("seed %d, step %d (%s): slot %d, byte %zu of %zu is %d, "
	             "not %d", p->seed, p->step, p->doing,
	             (int)(slot - p->slots), i, slot->bytes, bytes[i],
	             slot->model[i]);
}

static void check_all(struct program *p)
{
	size_t i;

	for (i = 0; i < SLOTS; i++)
		if (p->slots[i].storage != NULL)
			check_slot(p, &p->slots[i]);
}

static unsigned char *copy_of(const unsigned char *model, size_t bytes)
{
	unsigned char *copy = malloc(bytes);

	ck_assert_ptr_nonnull(copy);
	return memcpy(copy, model, bytes);
}

static void release(struct slot *slot)
{
	cow_storage_unref(slot->storage);
	free(slot->model);
	memset(slot, 0, sizeof(*slot));
}

static void make(struct program *p, struct slot *slot)
{
	uint32_t flags = COW_STORAGE_ZERO;

	p->doing = "new";
	if (draw(p, 4) == 0)
		flags |= COW_STORAGE_TRANSPARENT;
	slot->bytes = draw_bytes(p);
	slot->storage = new_storage(slot->bytes, flags);
	slot->model = calloc(1, slot->bytes);
	ck_assert_ptr_nonnull(slot->model);
	if (flags & COW_STORAGE_TRANSPARENT)
		slot->exposed = expose(slot->storage);
}

/* A clone of `slot`, made with clones of all the others. */
static struct cow_storage *clone_among(struct program *p, const struct slot *slot)
{
	struct cow_storage *from[SLOTS], *to[SLOTS], *ret = NULL;
	const struct slot *of[SLOTS];
	size_t n = 0;

	for (size_t i = 0; i < SLOTS; i++)
		if (p->slots[i].storage != NULL) {
			of[n] = &p->slots[i];
			from[n++] = p->slots[i].storage;
		}
	ok(cow_storages_lazy_clone(from, n, NULL, to));
	for (size_t i = 0; i < n; i++) {
		ck_assert_mem_eq(data(to[i]), of[i]->model, of[i]->bytes);
		if (of[i] == slot)
			ret = to[i];
		else
			cow_storage_unref(to[i]);
	}
	return ret;
}

static void clone_to(struct program *p, struct slot *from, struct slot *to)
{
	size_t how = draw(p, 6);

	p->doing = how == 0 ? "clone" : how == 1 ? "lazy clones" : "lazy clone";
	if (how == 0)
		ok(cow_storage_clone(from->storage, &to->storage));
	else
		to->storage = how == 1 ? clone_among(p, from) : lazy(from->storage);
	to->bytes = from->bytes;
	to->model = copy_of(from->model, from->bytes);
	check_slot(p, from);
}

/* A run of bytes, or one byte in each of many places. */
static void write_bytes(struct program *p, struct slot *slot,
                        unsigned char *to, size_t at, size_t count)
{
	size_t i, end = at + count, step = 1 + draw(p, 3 * PAGE);
	unsigned char value = (unsigned char)prng_next(&p->prng);

	if (draw(p, 2) || count < PAGE) {
		memset(to + at, value, count);
		memset(slot->model + at, value, count);
		return;
	}
	for (i = at; i < end; i += step)
		to[i] = slot->model[i] = (unsigned char)(value + i);
}

static void write_slot(struct program *p, struct slot *slot)
{
	size_t at = draw(p, slot->bytes);
	size_t most = slot->bytes - at, count;
	enum cow_write_hint hint = (enum cow_write_hint)draw(p, 5);
	unsigned char *to;

	count = 1 + draw(p, draw(p, 2) ? most : most / 50 + 1);
	if (draw(p, 4) == 0) {
		p->doing = "write intent";
		ok(cow_storages_write_intent(&slot->storage, 1,
		                             (enum cow_write_hint)draw(p, 2), NULL));
	}
	if (slot->exposed != NULL && draw(p, 4)) {
		p->doing = "write unseen";
		write_bytes(p, slot, slot->exposed, at, count);
	} else if (hint == COW_WRITE_ALL) {
		p->doing = "write all of a range";
		to = mut_range(slot->storage, at, count, hint);
		memset(to + at, p->step, count);
		memset(slot->model + at, p->step, count);
	} else if (draw(p, 5) == 0) {
		p->doing = "write";
		write_bytes(p, slot, mut(slot->storage), at, count);
	} else {
		p->doing = "write with a hint";
		to = mut_range(slot->storage, at, count, hint);
		write_bytes(p, slot, to, at, count);
	}
}

static void resize_slot(struct program *p, struct slot *slot)
{
	size_t bytes = draw_bytes(p), old = slot->bytes, i;
	unsigned char *to;

	p->doing = "resize";
	ok(cow_storage_resize(slot->storage, bytes));
	slot->model = realloc(slot->model, bytes);
	ck_assert_ptr_nonnull(slot->model);
	slot->bytes = bytes;
	if (slot->exposed != NULL)
		slot->exposed = expose(slot->storage);
	/* A clone's new bytes are not promised to be zero. */
	to = mut(slot->storage);
	for (i = old; i < bytes; i++)
		to[i] = slot->model[i] = 0x42;
}

static void swap_slot(struct program *p, struct slot *slot)
{
	struct cow_data_ptr ptr;
	size_t bytes = draw_bytes(p);

	p->doing = "swap";
	ok(cow_allocator_allocate(cow_allocator_default(), bytes, &ptr));
	memset(ptr.data, 0x17, bytes);
	ok(cow_storage_swap_data_ptr(slot->storage, &ptr, bytes));
	ck_assert_mem_eq(ptr.data, slot->model, slot->bytes);
	memset(ptr.data, 0xdb, slot->bytes);
	cow_data_ptr_clear(&ptr);
	slot->bytes = bytes;
	slot->model = realloc(slot->model, bytes);
	ck_assert_ptr_nonnull(slot->model);
	memset(slot->model, 0x17, bytes);
	if (slot->exposed != NULL)
		slot->exposed = expose(slot->storage);
}

static void run_steps(struct program *p, int steps, bool forks);

static void goes_on(void *arg)
{
	struct program *p = arg;

	check_all(p);
	run_steps(p, 20, false);
	check_all(p);
}

static void step(struct program *p, bool forks)
{
	struct slot *slot = &p->slots[draw(p, SLOTS)];
	struct slot *other = &p->slots[draw(p, SLOTS)];
	size_t what = draw(p, 100);

	if (slot->storage == NULL) {
		if (other->storage == NULL)
			make(p, slot);
		else
			clone_to(p, other, slot);
	} else if (what < 50) {
		write_slot(p, slot);
	} else if (what < 60) {
		p->doing = "free";
		release(slot);
		return;
	} else if (what < 80) {
		if (other != slot && other->storage != NULL)
			release(other);
		if (other != slot)
			clone_to(p, slot, other);
	} else if (what < 86) {
		p->doing = "expose";
		slot->exposed = expose(slot->storage);
	} else if (what < 90) {
		resize_slot(p, slot);
	} else if (what < 93) {
		swap_slot(p, slot);
	} else if (what < 95) {
		p->doing = "trim";
		cow_trim();
	} else if (what < 98 && forks) {
		p->doing = "fork";
		in_child(goes_on, p);
	}
	check_slot(p, slot);
}

static void run_steps(struct program *p, int steps, bool forks)
{
	int i;

	for (i = 0; i < steps; i++, p->step++) {
		step(p, forks);
		if (i % 16 == 0)
			check_all(p);
	}
}

static const struct {
	size_t largest;
	int steps;
} plans[] = {
	{ 1, 600 },       { 100, 1500 },     { 3 * PAGE, 1500 },
	{ 70000, 1500 },  { 500000, 800 },   { 2 * MIB, 500 },
	{ 3 * MIB, 400 }, { 8 * MIB, 250 },
};
enum { PLANS = COUNT(plans) };

static void run_program(int i, bool forks)
{
	struct program p;
	size_t n;

	memset(&p, 0, sizeof(p));
	p.largest = plans[i % PLANS].largest;
	p.seed = i;
	p.prng = prng_make((uint64_t)i + (forks ? 1000 : 0));
	run_steps(&p, ROUNDS(plans[i % PLANS].steps) / (forks ? 4 : 1), forks);
	check_all(&p);
	for (n = 0; n < SLOTS; n++)
		if (p.slots[n].storage != NULL)
			release(&p.slots[n]);
}

START_TEST(random_program)
{
	run_program(_i, false);
}
END_TEST

START_TEST(random_program_that_forks)
{
	run_program(_i, true);
}
END_TEST

int main(void)
{
	int seeds = getenv("LONG") != NULL ? 20 * SEEDS : SEEDS;
	Suite *suite = suite_create("model");
	TCase *tcase = add_case(suite, "model");

	tcase_add_loop_test(tcase, random_program, 0, PLANS * seeds);
	tcase_add_loop_test(tcase, random_program_that_forks, 0,
	                    PLANS * seeds / 2);
	return run_suite(suite);
}
