/* SPDX-License-Identifier: MIT */
/*
 * Random programs of several threads, against plain arrays
 *
 * Each thread runs a program of its own (tests/support/model.h). Besides, threads do what the
 * headers allow them to do together:
 *
 *     sources    storages of all. Any thread reads and clones them; writes are ordered against
 *                reads by a lock, as for any memory
 *     box        a storage changes its owner
 *     channel    all send and receive on one: who receives a clone of it need not be who sent it
 *     cells      a transparent storage is cloned while its owner writes it: what was written before
 *                the call is in the clone
 *
 * Clones need no lock of the program's. Which thread comes first differs from run to run, so a seed
 * repeats the operations of each thread, and not their order between threads.
 */
#include "tests/support/model.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, SOURCES = 3, WAYS = 64 };
#ifdef LONG_MODEL
enum { SEEDS = LONG_MODEL };
#else
enum { SEEDS = 8 };
#endif

struct source {
	pthread_rwlock_t lock;
	struct slot slot;
};

/* What all threads have in common. */
struct common {
	struct source sources[SOURCES];
	pthread_mutex_t lock; /* of what follows */
	struct slot box;
	struct array *way[WAYS]; /* what is on its way in the channel */
	struct ends ends;
	struct cow_channel *mine; /* the other end */
	uint64_t *cells; /* of a transparent storage, a thread's side by side */
	struct cow_storage *cells_storage;
	pthread_barrier_t barrier; /* of all threads, and the one that made them */
};

struct worker {
	struct program program;
	struct common *common;
	pthread_t thread;
	int steps;
	uint64_t count; /* in this thread's cells */
};

/* ---- Together ------------------------------------------------------------------- */

static void with_source(struct worker *w, struct slot *to)
{
	struct source *s = &w->common->sources[draw(&w->program, SOURCES)];
	struct program *p = &w->program;

	if (draw(p, 4)) {
		must(pthread_rwlock_rdlock(&s->lock) == 0);
		check_slot(p, &s->slot);
		slot_clone(p, &s->slot, to);
		must(pthread_rwlock_unlock(&s->lock) == 0);
		return;
	}
	must(pthread_rwlock_wrlock(&s->lock) == 0);
	switch (draw(p, 4)) {
	case 0:
		slot_resize(p, &s->slot);
		break;
	case 1: /* its bytes may move */
		if (!s->slot.exposed)
			share_slot(p, &s->slot, to, draw(p, 2) ? COW_SHARE_CLONE : COW_SHARE_SEALED);
		break;
	default:
		slot_write(p, &s->slot);
	}
	check_slot(p, &s->slot);
	must(pthread_rwlock_unlock(&s->lock) == 0);
}

/* Puts a storage that nobody else has, and takes what was there. */
static void with_box(struct worker *w, struct slot *s)
{
	struct slot was;

	w->program.doing = "box";
	if (s->storage && (s->array->users > 1 || s->array->common || s->array->under ||
	                   s->array->alias))
		return;
	must(pthread_mutex_lock(&w->common->lock) == 0);
	was = w->common->box;
	w->common->box = *s;
	must(pthread_mutex_unlock(&w->common->lock) == 0);
	*s = was;
	if (s->storage)
		check_slot(&w->program, s);
}

/* Sends, and receives what came first. The note says which array it must equal. */
static void with_channel(struct worker *w, struct slot *s)
{
	struct program *p = &w->program;
	struct cow_parcel out = parcel(s->storage, draw(p, 2) ? COW_SHARE_CLONE : COW_SHARE_SEALED);
	struct array *a = array_of(s);
	size_t way = 0, n = 0;
	struct cow_parcel in;

	p->doing = "a channel of all";
	must(pthread_mutex_lock(&w->common->lock) == 0);
	while (w->common->way[way])
		way++;
	w->common->way[way] = a;
	must(pthread_mutex_unlock(&w->common->lock) == 0);
	gives(p, 1, cow_channel_send(w->common->ends.mine, &out, 1, &way, sizeof(way)));
	gives(p, 1, cow_channel_receive(w->common->mine, &in, 1, &way, sizeof(way), &n));
	must(n == sizeof(way) && way < WAYS);
	must(pthread_mutex_lock(&w->common->lock) == 0);
	a = w->common->way[way];
	w->common->way[way] = NULL;
	must(pthread_mutex_unlock(&w->common->lock) == 0);
	slot_release(p, s);
	slot_take(s, in.storage, a);
	a->resize = RESIZE_MAY;
	check_slot(p, s);
}

enum { CELLS = 64 * 1024 }; /* of a thread, 8 bytes each */

/* Counts in cells of its own, all of them in order, while others clone. A clone shows no cell of
 * another thread as it was never, and each of the calling thread's as it is. */
static void with_cells(struct worker *w)
{
	struct program *p = &w->program;
	uint64_t *mine = w->common->cells + (size_t)p->thread * CELLS;
	struct cow_storage *clone;
	const uint64_t *is;

	p->doing = "cells";
	w->count++;
	for (size_t i = 0; i < CELLS; i++)
		__atomic_store_n(&mine[i], w->count, __ATOMIC_RELAXED);
	if (draw(p, 2))
		return;
	ok(cow_storage_lazy_clone(w->common->cells_storage, &clone));
	is = (const uint64_t *)(const void *)data(clone);
	for (size_t i = 0; i < THREADS * (size_t)CELLS; i++) {
		bool own = i / CELLS == (size_t)p->thread;
		uint64_t now = __atomic_load_n(&w->common->cells[i], __ATOMIC_RELAXED);

		if (own ? is[i] != w->count : is[i] > now)
			program_fails(p, "cell %zu is %lu of %lu", i, (unsigned long)is[i],
			              (unsigned long)now);
	}
	cow_storage_unref(clone);
}

/* A sanitizer allocates where a thread begins and where one ends. No other thread may fork then
 * (tests/support/model_heap.c). */
static void together(struct common *c)
{
	int r = SANITIZED ? pthread_barrier_wait(&c->barrier) : 0;

	must(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *run(void *arg)
{
	struct worker *w = arg;
	struct program *p = &w->program;

	together(w->common);
	for (int i = 0; i < w->steps; i++) {
		struct slot *s = &p->slots[draw(p, MODEL_SLOTS)];
		size_t what = draw(p, 16);

		if (what == 0)
			with_source(w, s);
		else if (what == 1)
			with_box(w, s);
		else if (what == 2 && s->storage && !s->array->elements && !s->array->sparse)
			with_channel(w, s);
		else if (what == 3 && w->common->cells && draw(p, 16) == 0)
			with_cells(w);
		else
			program_step(p);
		if (i % 8 == 0)
			check_all(p);
	}
	together(w->common);
	return NULL;
}

/* ---- The whole ------------------------------------------------------------------ */

static void common_begin(struct common *c, struct program *p, int type)
{
	void (*const kinds[SOURCES])(struct program *, struct slot *) = {
		slot_new, slot_new_elements, slot_new_external,
	};

	for (int i = 0; i < SOURCES; i++) {
		must(pthread_rwlock_init(&c->sources[i].lock, NULL) == 0);
		kinds[i](p, &c->sources[i].slot);
	}
	must(pthread_mutex_init(&c->lock, NULL) == 0);
	must(pthread_barrier_init(&c->barrier, NULL, THREADS + 1) == 0);
	must(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, c->ends.fd) == 0);
	c->ends.group = cow_channel_group(p->own.mine);
	ok(cow_channel_new(c->ends.fd[0], c->ends.group, 0, &c->ends.mine));
	ok(cow_channel_new(c->ends.fd[1], c->ends.group, 0, &c->mine));
	/* The library may copy the cells itself, a race by the header's promise. */
	if (UNDER_TSAN)
		return;
	c->cells_storage = new_storage(THREADS * (size_t)CELLS * sizeof(uint64_t),
	                               COW_STORAGE_ZERO | COW_STORAGE_TRANSPARENT);
	c->cells = (uint64_t *)(void *)expose(c->cells_storage);
}

static void common_end(struct common *c, struct program *p)
{
	for (int i = 0; i < SOURCES; i++) {
		check_slot(p, &c->sources[i].slot);
		slot_release(p, &c->sources[i].slot);
		must(pthread_rwlock_destroy(&c->sources[i].lock) == 0);
	}
	slot_release(p, &c->box);
	must(pthread_mutex_destroy(&c->lock) == 0);
	must(pthread_barrier_destroy(&c->barrier) == 0);
	cow_channel_free(c->mine);
	ends_free(&c->ends);
	cow_storage_unref(c->cells_storage);
}

static const struct {
	size_t largest;
	int steps, long_steps; /* of each thread; of long_model_threads.c: 2500 together */
} plans[] = {
	{ 100, 600, 1000 }, { 3 * PAGE, 600, 1000 }, { 500000, 250, 400 }, { 3 * MIB, 100, 100 },
};

static int steps_of(int plan)
{
#ifdef LONG_MODEL
	return plans[plan].long_steps;
#else
	return ROUNDS(plans[plan].steps);
#endif
}

START_TEST(random_threads)
{
	static struct worker workers[THREADS];
	static struct common common;
	int plan = _i % (int)COUNT(plans);
	int type = _i / (int)COUNT(plans) % 2 ? SOCK_SEQPACKET : SOCK_STREAM;

	for (int i = 0; i < THREADS; i++) {
		struct program *p = &workers[i].program;

		p->thread = i;
		p->beside = true;
		program_begin(p, _i, plans[plan].largest, type, workers[0].program.own.group);
		workers[i].common = &common;
		workers[i].steps = steps_of(plan);
	}
	common_begin(&common, &workers[0].program, type);
	for (int i = 0; i < THREADS; i++)
		must(pthread_create(&workers[i].thread, NULL, run, &workers[i]) == 0);
	together(&common);
	together(&common);
	for (int i = 0; i < THREADS; i++)
		must(pthread_join(workers[i].thread, NULL) == 0);
	common_end(&common, &workers[0].program);
	/* The last one's peer has the sockets of all before it. */
	for (int i = THREADS - 1; i >= 0; i--)
		program_end(&workers[i].program);
	must(elements_living() == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share_model_threads");

	model_seeds(add_case(suite, "model"), random_threads, SEEDS);
	return run_suite(suite);
}
