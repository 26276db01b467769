/* SPDX-License-Identifier: MIT */
/*
 * Test support: a random program that shares its storages
 *
 * Storages are sent to the program itself and to a process that changes them and sends them back,
 * exported and imported, in all modes, over both kinds of sockets. Now and then the program forks,
 * and the child goes on by itself. What one storage does must show in its aliases, and in no other.
 */
#include "tests/support/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What the other process does to a storage before it sends it back. */
struct order {
	uint32_t back; /* enum cow_share_mode */
	unsigned char value;
	size_t at, count; /* of these bytes; 0: it only looks at them */
};

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
	if (mode == COW_SHARE_ALIAS) {
		must(storage == from->storage);
		*to = *from;
		to->array->users++;
		to->array->alias = true;
	} else {
		slot_take(to, storage, array_of(from));
		to->array->resize = RESIZE_MAY;
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
			must(mode == COW_SHARE_ALIAS && from->array->alias);
			return;
		}
		gives(p, 0, r);
		ok(cow_storage_import(fd, offset, from->n, mode, &s));
		close(fd);
	}
	arrived(p, from, to, mode, s);
}

/* The other process may write it. Its clones and sealed storages are its own, its aliases ours. */
static void to_the_other(struct program *p, struct slot *from, struct slot *to,
                         enum cow_share_mode mode)
{
	struct order o = { .back = (uint32_t)draw(p, 3),
		           .value = (unsigned char)prng_next(&p->prng) };
	struct cow_parcel out = parcel(from->storage, mode), in;
	struct array *a;

	p->doing = "to the other process and back";
	if (draw(p, 2))
		o.count = slot_range(p, from, &o.at);
	gives(p, 1, cow_channel_send(p->other.mine, &out, 1, &o, sizeof(o)));
	gives(p, 1, cow_channel_receive(p->other.mine, &in, 1, NULL, 0, NULL));
	if (mode == COW_SHARE_ALIAS) {
		from->array->alias = true;
		memset(from->array->bytes + o.at, o.value, o.count);
	}
	if (in.storage == from->storage) {
		*to = *from;
		to->array->users++;
	} else {
		must(mode != COW_SHARE_ALIAS || o.back != COW_SHARE_ALIAS);
		a = array_of(from);
		a->alias = o.back == COW_SHARE_ALIAS;
		a->resize = RESIZE_MAY;
		memset(a->bytes + o.at, o.value, o.count);
		slot_take(to, in.storage, a);
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

/* Not the engine's memory, and not what another process gave us. */
static bool is_external(const struct cow_storage *s)
{
	struct cow_storage_info info = info_of(s);

	return info.state == COW_STATE_FOREIGN && info.shared == COW_SHARED_NOT;
}

/* Memory that the engine does not own can't become an alias. */
static void no_alias(struct program *p, struct slot *s)
{
	struct cow_parcel out = parcel(s->storage, COW_SHARE_ALIAS);
	uint64_t offset = 1;
	int fd = -7;

	p->doing = "alias of external memory";
	gives(p, -EOPNOTSUPP, cow_channel_send(p->own.mine, &out, 1, NULL, 0));
	gives(p, -EOPNOTSUPP, cow_storage_export(s->storage, COW_SHARE_ALIAS, &fd, &offset));
	must(fd == -7 && offset == 1);
}

void share_slot(struct program *p, struct slot *from, struct slot *to, enum cow_share_mode mode)
{
	if (from->array->elements)
		elements_refuse(p, from);
	else if (mode == COW_SHARE_ALIAS && is_external(from->storage))
		no_alias(p, from);
	else if (mode != COW_SHARE_ALIAS || can_be_alias(from)) {
		slot_release(p, to);
		(draw(p, 2) ? to_itself : to_the_other)(p, from, to, mode);
	}
}

/* In the group's memory from the start. */
static void new_in_group(struct program *p, struct slot *s)
{
	enum cow_share_mode mode = draw(p, 2) ? COW_SHARE_CLONE : COW_SHARE_ALIAS;
	struct cow_storage *storage;
	size_t n = draw_bytes(p);

	p->doing = "new in the group";
	ok(cow_group_storage_new(p->own.group, n, mode, &storage));
	slot_take(s, storage, array_new(n, NULL));
	s->array->alias = mode == COW_SHARE_ALIAS;
	s->array->resize = RESIZE_MAY;
}

/* Aliases stay aliases, and files are the parent's, too: the child leaves those alone. */
static void goes_on(void *arg)
{
	struct program *p = arg;

	heap_child();
	check_all(p);
	p->alone = true;
	for (int i = 0; i < MODEL_SLOTS; i++)
		if (p->slots[i].storage && (p->slots[i].array->alias || p->slots[i].array->common))
			slot_release(p, &p->slots[i]);
	program_steps(p, 10);
	check_all(p);
}

static void slots_fork(struct program *p)
{
	pid_t child;

	p->doing = "fork";
	heap_before_fork();
	child = child_start(goes_on, p);
	heap_parent();
	child_finish(child);
}

static void fill_slot(struct program *p, struct slot *s)
{
	size_t what = draw(p, 32);

	if (what < 14 || (p->alone && what >= 26))
		slot_new(p, s);
	else if (what < 18)
		slot_new_elements(p, s);
	else if (what < 25)
		slot_new_external(p, s);
	else if (what < 26)
		slot_new_sparse(p, s);
	else if (what < 28)
		new_in_group(p, s);
	else
		slot_from_file(p, s);
}

/* What needs but one storage. */
static void one_step(struct program *p, struct slot *s, size_t what)
{
	if (what < 80) {
		slot_write(p, s);
	} else if (what < 95) {
		p->doing = "free";
		slot_release(p, s);
	} else if (what < 105) {
		slot_resize(p, s);
	} else if (what < 110) {
		slot_swap(p, s);
	} else if (what < 114) {
		slot_rewrite(p, s);
	} else if (what < 118) {
		slot_refuses(p, s);
	} else if (what < 120) {
		p->doing = "trim";
		cow_trim();
	} else if (!p->alone) {
		slot_to_file(p, s);
	}
}

void program_step(struct program *p)
{
	struct slot *s = &p->slots[draw(p, MODEL_SLOTS)], *to = &p->slots[draw(p, MODEL_SLOTS)];
	size_t what = draw(p, 200);

	p->doing = "begin";
	p->step++;
	if (!s->storage) {
		fill_slot(p, s);
	} else if (what < 126) {
		one_step(p, s, what);
	} else if (what < 128) {
		if (!p->alone)
			slots_fork(p);
	} else if (s == to) {
		return;
	} else if (what < 134) {
		slot_ref(p, s, to);
	} else if (what < 160 || p->alone) {
		slot_clone(p, s, to);
	} else if (what < 170) {
		slot_from_file(p, to);
	} else {
		share_slot(p, s, to, modes[draw(p, 3)]);
	}
	if (s->storage)
		check_slot(p, s);
}

void program_steps(struct program *p, int steps)
{
	for (int i = 0; i < steps; i++) {
		program_step(p);
		if (i % 8 == 0)
			check_all(p);
	}
}

void program_begin(struct program *p, int seed, size_t largest, int type, struct cow_group *group)
{
	p->seed = seed;
	p->largest = largest;
	p->prng = prng_make((uint64_t)seed * 64 + (uint64_t)p->thread);
	p->doing = "begin";
	ends_make(&p->other, type, false);
	cow_channel_free(p->other.mine);
	if (group)
		p->other.group = cow_group_ref(group);
	else
		ok(cow_group_new(&p->other.group));
	ok(cow_channel_new(p->other.fd[0], p->other.group, COW_CHANNEL_TAKE_ALIASES,
	                   &p->other.mine));
	p->peer = child_start(other_main, p);
	close(p->other.fd[1]);
	p->other.fd[1] = -1;
	must(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, p->own.fd) == 0);
	p->own.group = cow_channel_group(p->other.mine);
	ok(cow_channel_new(p->own.fd[0], p->own.group, COW_CHANNEL_TAKE_ALIASES, &p->own.mine));
	ok(cow_channel_new(p->own.fd[1], p->own.group, COW_CHANNEL_TAKE_ALIASES, &p->mine));
	files_begin(p);
}

void program_end(struct program *p)
{
	check_all(p);
	for (int i = 0; i < MODEL_SLOTS; i++)
		slot_release(p, &p->slots[i]);
	files_end(p);
	cow_channel_free(p->mine);
	ends_free(&p->own);
	ends_free(&p->other);
	child_finish(p->peer);
}

void model_seeds(TCase *tcase, const TTest *test, int n)
{
	const char *seed = getenv("SEED");
	int from = seed ? atoi(seed) : 0;

	tcase_add_loop_test(tcase, test, from, seed ? from + 1 : n);
}
