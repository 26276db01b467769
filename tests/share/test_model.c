/* SPDX-License-Identifier: MIT */
/*
 * Random programs that share storages, against plain arrays
 *
 * As tests/core/test_model.c, of which this is the other half: storages are sent to the program
 * itself and to a process that changes them and sends them back, exported and imported, in all
 * modes, over both kinds of sockets. Aliases have one array for all of their handles. What one
 * storage does must show in its aliases, and in no other.
 */
#include "tests/support/ends.h"
#include "tests/support/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 8, SEEDS = 4 };

struct array {
	unsigned char *bytes;
	size_t n;
	int users;
	bool alias; /* it has its place in the group for good */
};

struct slot {
	struct cow_storage *storage; /* NULL: free */
	struct array *array;
	unsigned char *exposed; /* where to write without a word */
};

/* What the other process does to a storage before it sends it back. */
struct order {
	uint32_t back; /* enum cow_share_mode */
	unsigned char value;
	size_t at, count; /* of these bytes; 0: it only looks at them */
};

struct program {
	struct slot slots[SLOTS];
	struct ends own, other; /* to itself, to the other process */
	struct cow_channel *mine; /* the other end of `own` */
	pid_t peer;
	struct prng prng;
	size_t largest;
	int seed, step;
	const char *doing;
};

static size_t draw(struct program *p, size_t limit)
{
	return prng_below(&p->prng, limit);
}

static void check_slot(struct program *p, const struct slot *s)
{
	const unsigned char *bytes = data(s->storage);
	size_t i = 0;

	ck_assert_uint_eq(cow_storage_bytes(s->storage), s->array->n);
	if (s->exposed)
		ck_assert_ptr_eq(bytes, s->exposed);
	if (memcmp(bytes, s->array->bytes, s->array->n) == 0)
		return;
	while (bytes[i] == s->array->bytes[i])
		i++;
	ck_abort_msg("seed %d, step %d (%s): slot %d, byte %zu of %zu is %d, not %d", p->seed,
	             p->step, p->doing, (int)(s - p->slots), i, s->array->n, bytes[i],
	             s->array->bytes[i]);
}

static void check_all(struct program *p)
{
	for (int i = 0; i < SLOTS; i++)
		if (p->slots[i].storage)
			check_slot(p, &p->slots[i]);
}

static struct array *array_new(size_t n, const unsigned char *bytes)
{
	struct array *a = calloc(1, sizeof(*a));

	ck_assert_ptr_nonnull(a);
	*a = (struct array){ .bytes = calloc(1, n), .n = n, .users = 1 };
	ck_assert_ptr_nonnull(a->bytes);
	if (bytes)
		memcpy(a->bytes, bytes, n);
	return a;
}

static void release(struct slot *s)
{
	if (!s->storage)
		return;
	cow_storage_unref(s->storage);
	if (--s->array->users == 0) {
		free(s->array->bytes);
		free(s->array);
	}
	*s = (struct slot){ NULL, NULL, NULL };
}

static void make(struct program *p, struct slot *s)
{
	static const uint32_t kinds[] = { 0, 0, COW_STORAGE_TRANSPARENT, COW_STORAGE_SHAREABLE };
	uint32_t kind = kinds[draw(p, COUNT(kinds))];
	size_t n = 1 + draw(p, draw(p, 4) ? p->largest : p->largest / 64 + 1);

	p->doing = "new";
	s->storage = new_storage(n, COW_STORAGE_ZERO | kind);
	s->array = array_new(n, NULL);
	if (kind == COW_STORAGE_TRANSPARENT)
		s->exposed = expose(s->storage);
}

static void write_slot(struct program *p, struct slot *s)
{
	size_t at = draw(p, s->array->n), most = s->array->n - at;
	size_t count = 1 + draw(p, draw(p, 2) ? most : most / 50 + 1);
	enum cow_write_hint hint = (enum cow_write_hint)draw(p, 5);
	unsigned char value = (unsigned char)prng_next(&p->prng), *to;

	p->doing = "write";
	if (draw(p, 4) == 0)
		ok(cow_storages_write_intent(&s->storage, 1, (enum cow_write_hint)draw(p, 2),
		                             NULL));
	if (s->exposed && draw(p, 3))
		to = s->exposed;
	else
		to = draw(p, 4) ? mut_range(s->storage, at, count, hint) : mut(s->storage);
	memset(to + at, value, count);
	memset(s->array->bytes + at, value, count);
}

static void resize_slot(struct program *p, struct slot *s)
{
	size_t n = 1 + draw(p, p->largest), old = s->array->n;
	unsigned char *to;
	int r;

	p->doing = "resize";
	if (s->array->users > 1 || s->array->alias || s->exposed)
		return;
	r = cow_storage_resize(s->storage, n);
	if (r == -EPERM) /* what was imported has no allocator */
		return;
	ok(r);
	s->array->bytes = realloc(s->array->bytes, n);
	ck_assert_ptr_nonnull(s->array->bytes);
	s->array->n = n;
	to = mut(s->storage);
	for (size_t i = old; i < n; i++)
		to[i] = s->array->bytes[i] = 0x42;
}

/* Can it be an alias? One whose address was given away becomes so in place, if nobody else reads
 * its pages. */
static bool can_be_alias(const struct slot *s)
{
	int r;

	if (!s->exposed || s->array->alias)
		return true;
	r = cow_storage_share_in_place(s->storage);
	if (r != -EBUSY && r != -EOPNOTSUPP)
		ok(r);
	return r == 0;
}

/* `to` gets what came in this mode of `from`. */
static void arrived(struct program *p, struct slot *from, struct slot *to,
                    enum cow_share_mode mode, struct cow_storage *storage)
{
	to->storage = storage;
	if (mode == COW_SHARE_ALIAS) {
		ck_assert_ptr_eq(storage, from->storage);
		to->array = from->array;
		to->array->users++;
		to->array->alias = true;
		to->exposed = from->exposed;
	} else {
		to->array = array_new(from->array->n, from->array->bytes);
	}
	check_slot(p, from);
	check_slot(p, to);
}

static void to_itself(struct program *p, struct slot *from, struct slot *to,
                      enum cow_share_mode mode)
{
	struct cow_storage *s;
	uint64_t offset;
	int fd, r;

	if (draw(p, 2)) {
		p->doing = "send to itself";
		send_one(p->own.mine, from->storage, mode);
		s = receive_one(p->mine);
	} else {
		p->doing = "export and import";
		r = cow_storage_export(from->storage, mode, &fd, &offset);
		if (r == -EXDEV) { /* it lies in the group's memory */
			ck_assert(mode == COW_SHARE_ALIAS && from->array->alias);
			return;
		}
		ok(r);
		ok(cow_storage_import(fd, offset, from->array->n, mode, &s));
		close(fd);
	}
	arrived(p, from, to, mode, s);
}

/* The other process may write it. Its clones and sealed storages are its own, its aliases ours. */
static void to_the_other(struct program *p, struct slot *from, struct slot *to,
                         enum cow_share_mode mode)
{
	struct order o = { .back = (uint32_t)draw(p, 3),
		           .value = (unsigned char)prng_next(&p->prng),
		           .at = draw(p, from->array->n) };
	struct cow_parcel out = parcel(from->storage, mode), in;
	struct array *a;

	p->doing = "to the other process and back";
	if (draw(p, 2))
		o.count = 1 + draw(p, from->array->n - o.at);
	ck_assert_int_eq(cow_channel_send(p->other.mine, &out, 1, &o, sizeof(o)), 1);
	ck_assert_int_eq(cow_channel_receive(p->other.mine, &in, 1, NULL, 0, NULL), 1);
	if (mode == COW_SHARE_ALIAS) {
		from->array->alias = true;
		memset(from->array->bytes + o.at, o.value, o.count);
	}
	to->storage = in.storage;
	if (in.storage == from->storage) {
		to->array = from->array;
		to->array->users++;
		to->exposed = from->exposed;
	} else {
		ck_assert(mode != COW_SHARE_ALIAS || o.back != COW_SHARE_ALIAS);
		a = to->array = array_new(from->array->n, from->array->bytes);
		a->alias = o.back == COW_SHARE_ALIAS;
		memset(a->bytes + o.at, o.value, o.count);
	}
	check_slot(p, from);
	check_slot(p, to);
}

static void other_main(void *arg)
{
	struct program *p = arg;
	struct cow_channel *c = child_channel(&p->other);
	struct cow_parcel in;
	struct order o;
	size_t n;

	cow_channel_free(p->other.mine);
	close(p->other.fd[0]);
	while (cow_channel_receive(c, &in, 1, &o, sizeof(o), &n) == 1) {
		must(n == sizeof(o));
		if (o.count)
			memset(mut_range(in.storage, o.at, o.count, COW_WRITE_BY_PAGE) + o.at, o.value,
			       o.count);
		in.mode = o.back;
		must(cow_channel_send(c, &in, 1, NULL, 0) == 1);
		cow_storage_unref(in.storage);
	}
	_exit(0);
}

static void run_steps(struct program *p, int steps, bool alone);

/* Aliases stay aliases: the child leaves those alone. */
static void goes_on(void *arg)
{
	struct program *p = arg;

	check_all(p);
	for (int i = 0; i < SLOTS; i++)
		if (p->slots[i].storage && p->slots[i].array->alias)
			release(&p->slots[i]);
	run_steps(p, 10, true);
	check_all(p);
}

/* `alone`: in a child, whose channels are the parent's. */
static void step(struct program *p, bool alone)
{
	struct slot *s = &p->slots[draw(p, SLOTS)], *to = &p->slots[draw(p, SLOTS)];
	enum cow_share_mode mode = modes[draw(p, 3)];
	size_t what = draw(p, 100);

	if (!s->storage) {
		make(p, s);
	} else if (what < 40) {
		write_slot(p, s);
	} else if (what < 50) {
		p->doing = "free";
		release(s);
		return;
	} else if (what < 55) {
		resize_slot(p, s);
	} else if (what < 57) {
		p->doing = "trim";
		cow_trim();
	} else if (s == to) {
		return;
	} else if (what < 70 || alone) {
		p->doing = "lazy clone";
		release(to);
		to->storage = lazy(s->storage);
		to->array = array_new(s->array->n, s->array->bytes);
	} else if (what < 72) {
		p->doing = "fork";
		in_child(goes_on, p);
	} else if (mode != COW_SHARE_ALIAS || can_be_alias(s)) {
		release(to);
		(what < 86 ? to_itself : to_the_other)(p, s, to, mode);
	}
	check_slot(p, s);
}

static void run_steps(struct program *p, int steps, bool alone)
{
	for (int i = 0; i < steps; i++, p->step++) {
		step(p, alone);
		if (i % 8 == 0)
			check_all(p);
	}
}

static const struct {
	size_t largest;
	int steps;
} plans[] = {
	{ 100, 400 }, { 3 * PAGE, 400 }, { 500000, 300 }, { 3 * MIB, 200 }, { 8 * MIB, 100 },
};

START_TEST(random_program)
{
	struct program p = { .seed = _i, .largest = plans[_i % COUNT(plans)].largest };
	int type = _i / (int)COUNT(plans) % 2 ? SOCK_SEQPACKET : SOCK_STREAM;

	p.prng = prng_make((uint64_t)_i);
	ends_make(&p.other, type, true);
	p.peer = child_start(other_main, &p);
	close(p.other.fd[1]);
	p.other.fd[1] = -1;
	must(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, p.own.fd) == 0);
	p.own.group = cow_channel_group(p.other.mine);
	ok(cow_channel_new(p.own.fd[0], p.own.group, COW_CHANNEL_TAKE_ALIASES, &p.own.mine));
	ok(cow_channel_new(p.own.fd[1], p.own.group, COW_CHANNEL_TAKE_ALIASES, &p.mine));
	run_steps(&p, ROUNDS(plans[_i % COUNT(plans)].steps), false);
	check_all(&p);
	for (int i = 0; i < SLOTS; i++)
		release(&p.slots[i]);
	cow_channel_free(p.mine);
	ends_free(&p.own);
	ends_free(&p.other);
	child_finish(p.peer);
}
END_TEST

int main(void)
{
	int seeds = getenv("LONG") ? 20 * SEEDS : SEEDS;
	Suite *suite = suite_create("share_model");

	tcase_add_loop_test(add_case(suite, "model"), random_program, 0,
	                    (int)COUNT(plans) * seeds);
	return run_suite(suite);
}
