/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory
 *
 * Pinned memory is an extent of the engine (core/cow/pin.h) that is registered with the
 * driver, for all devices. For the engine it is a storage of the CPU on memory that others
 * write: it is cloned by copying, sent by copying, and never moved.
 *
 *      in use ---freed---> waiting (marks of its streams) ---passed---> cached
 *         ^                                                               |
 *         +---------------- a request of about its size -----------------+
 *
 * Sizes are rounded to pages, and memory is never split. Freed memory serves a request of
 * the same size, or of up to an eighth less. The cache is emptied when the program asks for
 * that, or when no more memory can be pinned.
 *
 * Memory that is sent as an alias moves to a home, and is not cached (pinned_alias.c).
 *
 * The lock guards the lists. It is taken after the share lock. With it held the driver is
 * called for marks. Registering takes long; for that, and for the engine, the lock is
 * not held.
 */
#include "cuda/pinned.h"
#include "core/base/error.h"
#include "core/cow/pin.h"
#include "core/base/pool.h"
#include "core/storage/storage.h"
#include "core/base/tree.h"
#include "cuda/stream.h"
#include "cuda/uses.h"
#include "share/home.h"

#define LOOKS 8

enum state { IN_USE, WAITING, CACHED };

struct pinned {
	struct cow__node node;       /* key: address */
	struct pinned *prev, *next;  /* in the list of waiting or cached ones */
	struct cow__cuda_use *uses;
	size_t bytes;
	enum state state;
	struct cow__home *home;      /* NULL: an extent of its own */
};

struct list {
	struct pinned *first, *last;
};

static struct cow__pool all_pinned = { .object_bytes = sizeof(struct pinned) };

static struct {
	struct cow__mutex lock;
	struct cow__node *root;
	struct list waiting, cached;
	struct list ending; /* homes that no storage needs */
	uint64_t bytes, cached_bytes;
} p;

static void
list_add(struct list *l, struct pinned *a)
{
	a->prev = l->last;
	a->next = NULL;
	if (l->last)
		l->last->next = a;
	else
		l->first = a;
	l->last = a;
}

static void
list_remove(struct list *l, struct pinned *a)
{
	if (a->next)
		a->next->prev = a->prev;
	else
		l->last = a->prev;
	if (a->prev)
		a->prev->next = a->next;
	else
		l->first = a->next;
}

static void *
address_of(const struct pinned *a)
{
	return (void *)a->node.key;
}

void
cow__cuda_pinned_count(uint64_t *ret_bytes, uint64_t *ret_cached)
{
	cow__mutex_lock(&p.lock);
	*ret_bytes = p.bytes;
	*ret_cached = p.cached_bytes;
	cow__mutex_unlock(&p.lock);
}

/* ---- Lists: locked ----------------------------------------------------------------- */

static void
passed(struct pinned *a)
{
	a->state = CACHED;
	list_add(a->home ? &p.ending : &p.cached, a);
}

/* Looks at a few waiting ones, or at `all`. Those that have passed become cached. */
static void
drain(bool all)
{
	struct pinned *a = p.waiting.first, *last = p.waiting.last, *next;

	for (int looks = 0; a && (all || looks < LOOKS); a = next) {
		bool end = a == last;

		next = a->next;
		list_remove(&p.waiting, a);
		if (cow__cuda_uses_passed(&a->uses, NULL) == 1) {
			passed(a);
		} else {
			list_add(&p.waiting, a);
			looks++;
		}
		if (end)
			break;
	}
}

static struct pinned *
find_cached(size_t bytes)
{
	struct pinned *a, *best = NULL;

	for (a = p.cached.first; a; a = a->next)
		if (a->bytes >= bytes && a->bytes - bytes <= bytes / 8 &&
		    (!best || a->bytes < best->bytes))
			best = a;
	if (best) {
		list_remove(&p.cached, best);
		best->state = IN_USE;
		p.cached_bytes -= best->bytes;
	}
	return best;
}

static struct pinned *
find_at(const void *address)
{
	struct pinned *a = (struct pinned *)cow__tree_floor(p.root,
	                                                    (uintptr_t)address);

	return a && (uintptr_t)address - a->node.key < a->bytes ? a : NULL;
}

bool
cow__cuda_pinned_has(const void *address)
{
	bool has;

	cow__mutex_lock(&p.lock);
	has = find_at(address) != NULL;
	cow__mutex_unlock(&p.lock);
	return has;
}

int
cow__cuda_pinned_used(const void *address, struct cow__cuda *d,
                      struct cow__cu_stream *stream)
{
	struct pinned *a;
	int r = 0;

	if (stream == COW_CU_STREAM_LEGACY)
		stream = NULL;
	cow__mutex_lock(&p.lock);
	a = find_at(address);
	if (a && a->state == IN_USE) {
		r = cow__cuda_uses_add(&a->uses, d, stream);
		r = r < 0 ? r : 1;
	}
	cow__mutex_unlock(&p.lock);
	return r;
}

static int
uses_end(struct cow__node *n, struct cow__cuda *d, struct cow__cu_stream *stream,
         enum cow__cuda_end how)
{
	int r;

	if (!n)
		return 0;
	r = cow__cuda_uses_end(((struct pinned *)n)->uses, d, stream, how);
	if (r == 0)
		r = uses_end(n->left, d, stream, how);
	return r == 0 ? uses_end(n->right, d, stream, how) : r;
}

int
cow__cuda_pinned_stream_ends(struct cow__cuda *d, struct cow__cu_stream *stream,
                             enum cow__cuda_end how)
{
	int r;

	cow__mutex_lock(&p.lock);
	r = uses_end(p.root, d, stream, how);
	cow__mutex_unlock(&p.lock);
	return r;
}

/* ---- The driver -------------------------------------------------------------------- */

/* Enters any device: the memory is pinned for all of them. */
static int
enter_any(struct cow__cuda **ret)
{
	int r = cow__cuda_get(0, ret);

	return r < 0 ? r : cow__cuda_enter(*ret);
}

/* Unpins it and gives its memory back to the engine. It must be in no list. Entered. */
static int
let_go(struct cow__cuda *d, struct pinned *a)
{
	int r = cow__cu_error(d->cu->host_unregister(address_of(a)),
	                      "unpinning host memory");

	if (r < 0)
		return r;
	cow__mutex_lock(&p.lock);
	cow__tree_remove(&p.root, &a->node);
	p.bytes -= a->bytes;
	p.cached_bytes -= a->bytes;
	cow__mutex_unlock(&p.lock);
	if (a->home) {
		cow__mutex_lock(&cow__share_lock);
		cow__home_unref(a->home);
		cow__mutex_unlock(&cow__share_lock);
	} else {
		cow__pinned_extent_free(address_of(a));
	}
	cow__pool_give(&all_pinned, a);
	return 0;
}

/* Frees all of a list, except what the driver does not unpin. Entered; locked, but lets the
 * lock go meanwhile. */
static int
let_all_go(struct cow__cuda *d, struct list *l)
{
	struct pinned *a;
	size_t n = 0; /* meanwhile other threads take some of them, and add more */
	int r = 0, one;

	for (a = l->first; a; a = a->next)
		n++;
	for (; n && (a = l->first) != NULL; n--) {
		list_remove(l, a);
		cow__mutex_unlock(&p.lock);
		one = let_go(d, a);
		cow__mutex_lock(&p.lock);
		if (one < 0) {
			list_add(l, a);
			r = one;
		}
	}
	return r;
}

/* Entered. */
static int
empty(struct cow__cuda *d)
{
	int r, s;

	cow__mutex_lock(&p.lock);
	drain(true);
	r = let_all_go(d, &p.cached);
	s = let_all_go(d, &p.ending);
	cow__mutex_unlock(&p.lock);
	return r < 0 ? r : s;
}

static int
register_new(struct cow__cuda *d, size_t bytes, void *data, struct pinned **ret)
{
	struct pinned *a = cow__pool_take(&all_pinned);
	int r;

	if (!a)
		return cow__error_from(-ENOMEM, "pinning host memory");
	r = cow__cu_error(d->cu->host_register(data, bytes, COW_CU_HOST_PORTABLE |
	                                                    COW_CU_HOST_DEVICEMAP),
	                  "pinning host memory");
	if (r < 0) {
		cow__pool_give(&all_pinned, a);
		return r;
	}
	*a = (struct pinned){ .node.key = (uintptr_t)data, .bytes = bytes,
		              .state = IN_USE };
	cow__mutex_lock(&p.lock);
	cow__tree_insert(&p.root, &a->node);
	p.bytes += bytes;
	cow__mutex_unlock(&p.lock);
	*ret = a;
	return 0;
}

static int
make_memory(struct cow__cuda *d, size_t bytes, struct pinned **ret)
{
	void *data;
	int r = cow__pinned_extent_new(bytes, &data);

	if (r < 0)
		return cow__error_from(r, "cow_cuda_pinned_new");
	r = register_new(d, bytes, data, ret);
	if (r < 0)
		cow__pinned_extent_free(data);
	return r;
}

static int
take_memory(size_t bytes, struct pinned **ret)
{
	struct pinned *a;
	struct cow__cuda *d;
	int r = cow__cuda_get(0, &d);

	if (r < 0)
		return r;
	cow__mutex_lock(&p.lock);
	drain(false);
	a = find_cached(bytes);
	if (p.ending.first && cow__cuda_enter(d) == 0) {
		(void)let_all_go(d, &p.ending);
		cow__cuda_leave(d);
	}
	cow__mutex_unlock(&p.lock);
	if (a) {
		cow__pinned_extent_set_idle(address_of(a), false);
		*ret = a;
		return 0;
	}
	r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	r = make_memory(d, bytes, ret);
	if (r == -ENOMEM) {
		(void)empty(d);
		r = make_memory(d, bytes, ret);
	}
	cow__cuda_leave(d);
	return r;
}

/* Its storage is gone: it waits for the streams that use it. */
static void
set_aside(struct pinned *a)
{
	cow__mutex_lock(&p.lock);
	p.cached_bytes += a->bytes;
	if (cow__cuda_uses_passed(&a->uses, NULL) == 1) {
		passed(a);
	} else {
		a->state = WAITING;
		list_add(&p.waiting, a);
	}
	cow__mutex_unlock(&p.lock);
}

/* The deleter of a storage's data pointer. */
static void
give(void *context)
{
	struct pinned *a = context;
	const struct cow__cu *cu;

	if (cow__cu_start(&cu) < 0) {
		/* A forked child frees its copy. A thread that it lacks may have the lock. */
		cow__pinned_extent_free(address_of(a));
		return;
	}
	cow__pinned_extent_set_idle(address_of(a), true);
	set_aside(a);
}

/* ---- For aliases (pinned_alias.c) ---------------------------------------------------- */

bool
cow__cuda_pinned_owns(const struct cow_storage *s)
{
	return s->data->kind == COW__AT_EXTERNAL &&
	       cow_data_ptr_cast(&s->data->ptr, give) != NULL;
}

int
cow__cuda_pinned_home(struct cow__cuda *d, struct cow__home *h)
{
	struct pinned *a;
	int r = register_new(d, cow__round_up(h->bytes, cow__page), h->data, &a);

	if (r == 0)
		a->home = h;
	return r;
}

void
cow__cuda_pinned_home_unused(const struct cow__home *h)
{
	struct pinned *a;

	cow__mutex_lock(&p.lock);
	a = find_at(h->data);
	cow__mutex_unlock(&p.lock);
	set_aside(a);
}

int
cow__cuda_pinned_await(struct cow__cuda *d, const void *data)
{
	struct cow__cuda_use use;
	struct pinned *a;
	bool none;
	int r = 0;

	while (r == 0) {
		cow__mutex_lock(&p.lock);
		a = find_at(data);
		none = !a || cow__cuda_uses_passed(&a->uses, d);
		if (!none)
			use = *a->uses;
		cow__mutex_unlock(&p.lock);
		if (none)
			break;
		if (!use.mark)
			return cow__error(-EBUSY, "a graph is being recorded that copies "
			                          "from or to this pinned memory");
		/* No other thread frees the marks of memory that is in use. */
		r = cow__cuda_await(use.device, use.mark);
	}
	return r;
}

/* ---- For the program --------------------------------------------------------------- */

COW_EXPORT int
cow_cuda_pinned_new(size_t bytes, struct cow_storage **ret)
{
	struct cow_data_ptr ptr = { .device = { COW_DEVICE_CPU, 0 } };
	struct pinned *a;
	int r;

	if (!ret)
		return cow__error(-EINVAL, "cow_cuda_pinned_new: ret is NULL");
	if (bytes > (size_t)INT64_MAX)
		return cow__error_number(
		        -EINVAL, "# bytes: a size this large is a mistake "
		                 "(negative?)", bytes);
	if (bytes == 0) {
		struct cow__cuda *d;

		r = cow__cuda_get(0, &d);
		return r < 0 ? r : cow_storage_new(0, NULL, ret);
	}
	r = take_memory(cow__round_up(bytes, cow__page), &a);
	if (r < 0)
		return r;
	ptr.data = address_of(a);
	ptr.context = a;
	ptr.deleter = give;
	r = cow_storage_new_external(&ptr, bytes, NULL, ret);
	if (r < 0)
		give(a);
	return r;
}

COW_EXPORT int
cow_cuda_pinned_empty_cache(void)
{
	struct cow__cuda *d;
	int r = enter_any(&d);

	if (r < 0)
		return r;
	r = empty(d);
	cow__cuda_leave(d);
	return r;
}
