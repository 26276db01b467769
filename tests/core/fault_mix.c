/* SPDX-License-Identifier: MIT */
/*
 * Everything at once, while calls of the kernel fail
 *
 * Lazy clones, lazy copies of parts, growing in place, thaws in parts, blocks, sealing and
 * forks are each tested by themselves. Here random programs mix them, on a few memories
 * whose bytes are compared with arrays. In two programs of three a call of the kernel fails
 * at times, in the middle of whatever is done: then either the operation says so and the
 * bytes are as before, or it is done all the same.
 */
#include "core/cow/copy.h"
#include "tests/support/fault/fault.h"
#include "tests/support/tensors.h"

#include <cowshed-share.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 6 };

struct slot {
	struct cow_storage *storage;
	unsigned char *address; /* of a block, or exposed: written unseen */
	bool block;
	unsigned char *model;
	size_t bytes;
};

struct program {
	struct slot slots[SLOTS];
	struct prng prng;
	size_t largest;
	int seed, step, hits; /* calls that were made to fail, in this process */
	bool faults, fired, child;
	const char *doing;
};

static size_t draw(struct program *p, size_t limit)
{
	return prng_below(&p->prng, limit);
}

static void arm(struct program *p)
{
	static const int errors[] = { ENOMEM, ENOMEM, EAGAIN, EPERM, EINVAL,
		                      FAULT_LASTING | ENOMEM };

	if (p->faults && draw(p, 3) == 0)
		fault_after(1 + (int)draw(p, draw(p, 2) ? 6 : 40),
		            errors[draw(p, COUNT(errors))]);
}

/* True: it was done. */
static bool done(struct program *p, int r)
{
	p->fired = fault_disarm();
	p->hits += p->fired;
	if (r < 0 && !p->fired)
		ck_abort_msg("seed %d, step %d (%s): %d, %s", p->seed, p->step,
		             p->doing, r, cow_last_error());
	return r >= 0;
}

static const unsigned char *bytes_of(const struct slot *s)
{
	return s->address ? s->address : data(s->storage);
}

static void check(struct program *p, const struct slot *s)
{
	const unsigned char *have;
	size_t i = 0;

	if (!s->model)
		return;
	have = bytes_of(s);
	if (memcmp(have, s->model, s->bytes) == 0)
		return;
	while (have[i] == s->model[i])
		i++;
	ck_abort_msg("seed %d, step %d (%s%s%s): slot %d, byte %#zx of %#zx is %d, not "
	             "%d", p->seed, p->step, p->doing, p->child ? ", in a child" : "",
	             p->fired ? ", a call failed" : "", (int)(s - p->slots), i,
	             s->bytes, have[i], s->model[i]);
}

static void check_all(struct program *p)
{
	for (int i = 0; i < SLOTS; i++)
		check(p, &p->slots[i]);
}

static void release(struct slot *s)
{
	cow_storage_unref(s->storage);
	if (s->block)
		cow_block_free(s->address);
	free(s->model);
	*s = (struct slot){ NULL };
}

static size_t draw_bytes(struct program *p)
{
	size_t n = 1 + draw(p, p->largest);

	return draw(p, 3) ? n + (PAGE - n % PAGE) % PAGE : n;
}

static void set_model(struct slot *s, const void *model, size_t bytes)
{
	s->bytes = bytes;
	s->model = malloc(bytes);
	ck_assert_ptr_nonnull(s->model);
	if (model)
		memcpy(s->model, model, bytes);
}

static void make(struct program *p, struct slot *s)
{
	size_t bytes = draw_bytes(p);
	void *block;
	int r;

	p->doing = "new";
	arm(p);
	s->block = draw(p, 4) == 0;
	if (s->block) {
		r = cow_block_new(bytes, 0, 0, &block);
		if (r == 0)
			s->address = block;
	} else {
		r = cow_storage_new(bytes, NULL, &s->storage);
	}
	if (!done(p, r)) {
		s->block = false;
		return;
	}
	set_model(s, NULL, bytes);
	fill(s->model, bytes, (uint64_t)p->step);
	if (s->block)
		memcpy(s->address, s->model, bytes);
	else
		memcpy(mut(s->storage), s->model, bytes);
}

/* Where something is done: pages at times, anything at others. */
static void range(struct program *p, size_t total, size_t *at, size_t *n)
{
	*at = draw(p, total);
	if (draw(p, 4))
		*at = *at / PAGE * PAGE;
	*n = total - *at;
	if (draw(p, 3))
		*n = 1 + draw(p, draw(p, 2) ? *n : *n / 16 + 1);
}

static void write_slot(struct program *p, struct slot *s)
{
	enum cow_write_hint hint = (enum cow_write_hint)draw(p, 5);
	size_t at, n, step = PAGE * (1 + draw(p, 4));
	void *to = s->address;
	unsigned char value = (unsigned char)prng_next(&p->prng);
	int r = 0;

	range(p, s->bytes, &at, &n);
	p->doing = "write unseen";
	if (!to || (!s->block && draw(p, 4) == 0)) {
		p->doing = "write";
		arm(p);
		r = cow_storage_data_mut_range(s->storage, at, n, hint, &to);
		if (!done(p, r))
			return;
	}
	if (hint == COW_WRITE_ALL || draw(p, 2)) {
		memset((unsigned char *)to + at, value, n);
		memset(s->model + at, value, n);
		return;
	}
	for (size_t i = at; i < at + n; i += step)
		((unsigned char *)to)[i] = s->model[i] = (unsigned char)(value + i / PAGE);
}

static struct cow_storage *storage_of(struct program *p, struct slot *s)
{
	struct cow_storage *t;
	size_t offset;

	if (!s->block)
		return cow_storage_ref(s->storage);
	arm(p);
	if (!done(p, cow_storage_from_ptr(s->address, &offset, &t)))
		return NULL;
	return t;
}

static void clone_to(struct program *p, struct slot *from, struct slot *to)
{
	struct cow_storage *s, *clone;

	p->doing = "lazy clone";
	release(to);
	s = storage_of(p, from);
	if (!s)
		return;
	arm(p);
	if (done(p, cow_storage_lazy_clone(s, &clone))) {
		to->storage = clone;
		set_model(to, from->model, from->bytes);
		ck_assert_uint_ge(cow_storage_bytes(clone), from->bytes);
	}
	cow_storage_unref(s);
}

static struct cow_tensor *part(struct cow_storage *s, size_t offset, size_t bytes)
{
	struct cow_tensor *t;

	ok(cow_tensor_on(s, COW_UINT8, 1, SIZES((int64_t)bytes), NULL,
	                 (int64_t)offset, &t));
	return t;
}

static void copy_part(struct program *p, struct slot *from, struct slot *to)
{
	struct cow_storage *s, *d;
	struct cow_tensor *a, *b;
	size_t at, offset, n;
	int r;

	p->doing = "lazy copy of a part";
	range(p, from->bytes, &offset, &n);
	at = draw(p, to->bytes) / PAGE * PAGE + offset % PAGE;
	if (at >= to->bytes)
		return;
	n = n < to->bytes - at ? n : to->bytes - at;
	s = storage_of(p, from);
	d = to->storage ? cow_storage_ref(to->storage) : NULL;
	if (!s || !d) {
		cow_storage_unref(s);
		cow_storage_unref(d);
		return;
	}
	a = part(d, at, n);
	b = part(s, offset, n);
	arm(p);
	r = cow_tensor_copy(a, b, COW_COPY_LAZY);
	if (done(p, r))
		memcpy(to->model + at, from->model + offset, n);
	else /* what is there is anything */
		memcpy(to->model + at, bytes_of(to) + at, n);
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_storage_unref(s);
	cow_storage_unref(d);
}

static void copy_block(struct program *p, struct slot *from, struct slot *to)
{
	size_t n = from->bytes < to->bytes ? from->bytes : to->bytes;
	bool watch;

	p->doing = "copy of a block";
	if (!to->address || !from->address)
		return;
	arm(p);
	if (!cow__copy_lazily(to->address, from->address, n, 1, &watch))
		memcpy(to->address, from->address, n);
	(void)done(p, 0);
	memcpy(to->model, from->model, n);
}

static void resize(struct program *p, struct slot *s)
{
	size_t bytes = draw(p, 2) ? draw_bytes(p) : s->bytes + draw(p, 3 * MIB), old = s->bytes;
	unsigned char *d;
	void *block;
	int r;

	p->doing = "resize";
	arm(p);
	if (s->block) {
		r = cow_block_resize(s->address, bytes, &block);
		if (r == 0)
			s->address = block;
	} else {
		r = cow_storage_resize(s->storage, bytes);
	}
	if (!done(p, r)) {
		if (s->address && !s->block)
			s->address = expose(s->storage);
		return;
	}
	if (s->address && !s->block)
		s->address = expose(s->storage);
	s->model = realloc(s->model, bytes);
	s->bytes = bytes;
	check(p, &(struct slot){ s->storage, s->address, s->block, s->model,
	                         old < bytes ? old : bytes });
	if (bytes <= old)
		return;
	d = s->address ? s->address : mut_range(s->storage, old, bytes - old, COW_WRITE_ALL);
	fill(d + old, bytes - old, (uint64_t)p->step);
	memcpy(s->model + old, d + old, bytes - old);
}

/* Only an alias that comes again is the same storage. */
static bool is_known(const struct program *p, const struct cow_storage *s)
{
	for (int i = 0; i < SLOTS; i++)
		if (p->slots[i].storage == s)
			return true;
	return false;
}

static void adopt(struct slot *to, struct cow_storage *s, const struct slot *from)
{
	to->storage = s;
	set_model(to, from->model, from->bytes);
}

static void exchange(struct program *p, struct slot *from, struct slot *to)
{
	enum cow_share_mode mode = draw(p, 2) ? COW_SHARE_CLONE : COW_SHARE_SEALED;
	struct cow_storage *s, *d;
	uint64_t offset;
	int fd;

	p->doing = "export";
	release(to);
	s = storage_of(p, from);
	if (!s)
		return;
	arm(p);
	if (done(p, cow_storage_export(s, mode, &fd, &offset))) {
		p->doing = "import";
		arm(p);
		if (done(p, cow_storage_import(fd, offset, from->bytes, mode, &d))) {
			must(!is_known(p, d));
			adopt(to, d, from);
		}
		close(fd);
	}
	cow_storage_unref(s);
}

static void expose_slot(struct program *p, struct slot *s)
{
	void *d;

	p->doing = "expose";
	if (s->storage) {
		arm(p);
		if (done(p, cow_storage_expose(s->storage, &d)))
			s->address = d;
	}
}

static void trim(struct program *p)
{
	p->doing = "trim";
	arm(p);
	cow_trim();
	(void)done(p, 0);
}

static void step(struct program *p);
static void run_steps(struct program *p, int steps);

static void goes_on(void *arg)
{
	struct program *p = arg;

	p->child = true;
	fault_disarm();
	check_all(p);
	p->prng.state ^= 0x5555555555u;
	run_steps(p, 8);
	for (int i = 0; i < SLOTS; i++)
		release(&p->slots[i]);
}

static void fork_program(struct program *p)
{
	pid_t child;
	int status;

	p->doing = "fork";
	arm(p);
	child = child_start(goes_on, p);
	p->fired = fault_disarm();
	p->hits += p->fired;
	if (draw(p, 2))
		step(p); /* while it runs */
	status = child_status(child);
	if (status != 0 && !(p->fired && WIFEXITED(status) && WEXITSTATUS(status) == 127))
		ck_abort_msg("seed %d, step %d: the child ended with %#x",
		             p->seed, p->step, (unsigned)status);
	p->doing = "fork";
}

static void step(struct program *p)
{
	struct slot *s = &p->slots[draw(p, SLOTS)], *t = &p->slots[draw(p, SLOTS)];
	size_t what = draw(p, 100);

	if (!s->model) {
		make(p, s);
	} else if (what < 35) {
		write_slot(p, s);
	} else if (what < 55) {
		if (s != t && t->model && t->storage)
			copy_part(p, s, t);
	} else if (what < 65) {
		if (s != t)
			clone_to(p, s, t);
	} else if (what < 72) {
		resize(p, s);
	} else if (what < 76) {
		p->doing = "free";
		release(s);
	} else if (what < 80) {
		if (s != t && t->model)
			copy_block(p, s, t);
	} else if (what < 83) {
		expose_slot(p, s);
	} else if (what < 89) {
		trim(p);
	} else if (what < 93) {
		if (s != t)
			exchange(p, s, t);
	} else if (!p->child) {
		fork_program(p);
	}
}

static void run_steps(struct program *p, int steps)
{
	for (int i = 0; i < steps; i++, p->step++) {
		p->fired = false;
		step(p);
		check_all(p);
	}
}

static int seed_from(void)
{
	const char *s = getenv("SEED");

	return s ? atoi(s) : 0;
}

START_TEST(random_programs)
{
	static const size_t largest[] = { 3 * MIB, 6 * MIB, 40 * MIB };
	static const int steps[] = { 250, 200, 60 };
	struct program p = { .seed = _i, .doing = "" };

	ok(cow_option_set("copies", "lazy"));
	p.prng = prng_make((uint64_t)_i + 77);
	p.largest = largest[_i / 3 % 3];
	p.faults = _i % 3;
	run_steps(&p, ROUNDS(steps[_i / 3 % 3]));
	for (int i = 0; i < SLOTS; i++)
		release(&p.slots[i]);
	/* A third of what is done is armed, and some calls of it are early enough. */
	ck_assert_msg(p.faults ? p.hits > p.step / 40 : p.hits == 0,
	              "seed %d: %d calls failed in %d steps", p.seed, p.hits, p.step);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mix");
	TCase *tcase = add_case(suite, "mix");

	tcase_add_loop_test(tcase, random_programs, seed_from(),
	                    seed_from() + (getenv("COUNT") ? atoi(getenv("COUNT")) : 9));
	return run_suite(suite);
}
