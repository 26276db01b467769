/* SPDX-License-Identifier: MIT */
/*
 * Homes: the table of them, made, opened and freed. See the header.
 */
#include "share/home.h"
#include "core/memory/state.h"
#include "core/base/keyed.h"
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/process.h"
#include "share/group.h"
#include "share/layout.h"
#include "share/pack_space.h"

#define SEAL_TRIES 16

static struct cow__pool homes = { .object_bytes = sizeof(struct cow__home) };

/* Homes in packs that a thread is filling without the lock. */
static struct cow__home *making;

/* ---- Finding ----------------------------------------------------------------- */

static struct cow__home **table;
static size_t slots, used;

static struct cow__hash_key secret;

/* A peer chooses the offset in its file, and members of a group choose pages. */
size_t
cow__home_place(const struct cow__home_key *k)
{
	const uint64_t words[] = { (uintptr_t)k->pack, k->at.page, k->dev, k->ino, k->offset };

	return (size_t)cow__keyed_hash(&secret, words, sizeof(words) / sizeof(words[0])) &
	       (slots - 1);
}

static struct cow__home_key
key_of(const struct cow__home *h)
{
	return (struct cow__home_key){
		.pack = h->pack,
		.at = h->at,
		.dev = h->pack ? 0 : h->file.dev,
		.ino = h->pack ? 0 : h->file.ino,
		.offset = h->pack ? 0 : h->offset,
	};
}

static bool
same(const struct cow__home_key *a, const struct cow__home_key *b)
{
	return a->pack == b->pack && a->at.page == b->at.page &&
	       a->at.generation == b->at.generation && a->dev == b->dev &&
	       a->ino == b->ino && a->offset == b->offset;
}

static void
insert(struct cow__home *h)
{
	struct cow__home_key k = key_of(h);
	size_t i = cow__home_place(&k);

	h->next = table[i];
	table[i] = h;
}

static int
table_add(struct cow__home *h)
{
	if (used >= slots) {
		size_t old = slots;
		struct cow__home **was = table;
		void *more;
		int r = old ? 0 : cow__random(&secret, sizeof(secret));

		if (r == 0)
			r = cow__map_meta((old ? old * 2 : 4096) * sizeof(*table),
			                  &more);
		if (r < 0)
			return r;
		table = more;
		slots = old ? old * 2 : 4096;
		for (size_t i = 0; i < old; i++)
			for (struct cow__home *x = was[i], *next; x; x = next) {
				next = x->next;
				insert(x);
			}
		if (was)
			(void)cow__map_release((uintptr_t)was,
			                       old * sizeof(*table));
	}
	insert(h);
	used++;
	return 0;
}

static void
table_remove(struct cow__home *h)
{
	struct cow__home_key k = key_of(h);
	struct cow__home **p = &table[cow__home_place(&k)];

	while (*p != h)
		p = &(*p)->next;
	*p = h->next;
	used--;
}

struct cow__home *
cow__home_find(const struct cow__home_key *key)
{
	struct cow__home *h = slots ? table[cow__home_place(key)] : NULL;

	for (; h; h = h->next) {
		struct cow__home_key k = key_of(h);

		/* A message means what the file has. */
		if (same(&k, key) && !h->diverged)
			break;
	}
	return h;
}

/* The diverged home of the same extent, or NULL. */
static struct cow__home *
diverged(const struct cow__home_key *key)
{
	struct cow__home *h = slots ? table[cow__home_place(key)] : NULL;

	for (; h; h = h->next) {
		struct cow__home_key k = key_of(h);

		if (same(&k, key) && h->diverged)
			break;
	}
	return h;
}

uint64_t
cow__home_offset(const struct cow__home *h)
{
	return h->pack ? cow__data_offset(h->pack->pages) +
	                         (uint64_t)h->at.page * cow__page
	               : h->offset;
}

/* ---- Birth and death ------------------------------------------------------------ */

/* A process with a home in a group's memory is a member, with a handle or without. */
static void
leave_pack(struct cow__home *h)
{
	struct cow_group *g = h->pack->group;

	cow__space_give(h->pack, &h->at);
	cow__group_unref(g);
}

static void
home_free(struct cow__home *h)
{
	if (h->mapping)
		(void)cow__map_release(h->mapping, h->mapped);
	if (h->under)
		cow__home_unref(h->under);
	else if (h->pack)
		leave_pack(h);
	else
		cow__descriptor_close(&h->file);
	cow__pool_give(&homes, h);
}

COW_EXPORT void
cow__home_unref(struct cow__home *h)
{
	bool (*ends)(struct cow__home *) = h->ends;

	if (--h->refs > 0)
		return;
	if (!h->hidden)
		table_remove(h);
	h->hidden = true;
	h->ends = NULL;
	if (ends && ends(h))
		h->refs = 1;
	else
		home_free(h);
}

/* Maps a memfd: an alias for writing, else for reading. */
static int
map_file(struct cow__home *h, const struct cow__descriptor *file, uint64_t offset)
{
	uint64_t from = cow__round_down(offset, cow__page);
	size_t skip = (size_t)(offset - from);
	size_t bytes = cow__round_up(skip + h->bytes, cow__page);
	uintptr_t at;
	int r;

	r = cow__map_reserve(bytes, COW__PACK_HUGE, &at);
	if (r < 0)
		return r;
	if (h->kind == COW__HOME_ALIAS) {
		r = cow__map_unlocked(at, bytes, file, from, true, true);
	} else {
		r = cow__map_unlocked(at, bytes, file, from, false, true);
		if (r == 0)
			r = cow__map_protect(at, bytes, COW__MAP_READ_ONLY);
	}
	if (r < 0) {
		(void)cow__map_release(at, bytes);
		return r;
	}
	h->mapping = at;
	h->mapped = bytes;
	h->data = (char *)at + skip;
	return 0;
}

/* Writes the bytes through a mapping, for the moment. A child must not have it: the file
 * could not be sealed while the child lives. So no fork() comes between the mapping and the
 * advice that withholds it. */
static int
fill_memfd(const struct cow__home *h, const struct cow__allocation *from)
{
	size_t bytes = cow__round_up(h->bytes, cow__page);
	uintptr_t at;
	int r = cow__map_reserve(bytes, COW__PACK_HUGE, &at);

	if (r < 0)
		return r;
	cow__share_enter();
	r = cow__map_unlocked(at, bytes, &h->file, 0, true, false);
	cow__share_leave();
	if (r == 0)
		cow__allocation_copy_out((char *)at, from, h->bytes);
	(void)cow__map_release(at, bytes);
	return r;
}

/* A memfd of exactly its bytes: a process that gets it sees nothing else. */
static int
make_memfd(struct cow__home *h, const struct cow__allocation *from)
{
	int r = cow__memfd_new_open("cowshed-storage", h->bytes, &h->file);

	if (r == 0)
		r = cow__memfd_seal(&h->file, COW__SEALED_SIZE);
	if (r == 0 && from)
		r = fill_memfd(h, from);
	if (r == 0 && h->kind == COW__HOME_SEALED)
		r = cow__memfd_seal(&h->file, COW__SEALED_WRITE);
	if (r < 0)
		cow__descriptor_close(&h->file);
	return r;
}

/* -EBUSY: a child of a fork that runs no handlers got the mapping for writing. It will not
 * get the next one, unless it forks again and again at that moment. */
static int
own_memfd(struct cow__home *h, const struct cow__allocation *from)
{
	int r = -EBUSY;

	for (int tries = 0; r == -EBUSY && tries < SEAL_TRIES; tries++)
		r = make_memfd(h, from);
	return r == 0 ? map_file(h, &h->file, 0) : r;
}

static void
making_remove(struct cow__home *h)
{
	struct cow__home **p = &making;

	while (*p != h)
		p = &(*p)->next;
	*p = h->next;
}

/* In a pack. -ENOSPC: it has to be a memfd of its own. */
static int
in_pack(struct cow__home *h, struct cow_group *group,
        const struct cow__allocation *from)
{
	int r;

	cow__share_enter();
	r = cow__pack_alloc(group, h->kind == COW__HOME_ALIAS, h->bytes, &h->pack,
	                    &h->at);
	if (r == 0) {
		group->refs++;
		h->next = making;
		making = h;
	}
	cow__share_leave();
	if (r < 0)
		return r;
	h->data = cow__pack_data(h->pack, h->at.page);
	if (from)
		cow__allocation_copy_out(h->data, from, h->bytes);
	cow__share_enter();
	making_remove(h);
	/* A fork came meanwhile, so not all bytes are in the file. */
	if (h->diverged) {
		leave_pack(h);
		h->pack = NULL;
		h->diverged = false;
		r = -ENOSPC;
	}
	cow__share_leave();
	return r;
}

COW_EXPORT int
cow__home_new(struct cow_group *group, enum cow__home_kind kind,
              const struct cow__allocation *from, size_t bytes,
              struct cow__home **ret)
{
	struct cow__home *h = cow__pool_take(&homes);
	int r = -ENOSPC;

	if (!h)
		return -ENOMEM;
	*h = (struct cow__home){
		.refs = 1,
		.kind = (uint8_t)kind,
		.file = COW__NO_DESCRIPTOR,
		.bytes = bytes,
	};
	if (group && kind != COW__HOME_SEALED)
		r = in_pack(h, group, from);
	if (r == -ENOSPC) {
		/* Too large for a pack, or too many packs. A sealed home serves clones, too. */
		if (kind == COW__HOME_PACKED)
			h->kind = COW__HOME_SEALED;
		h->exact = true;
		r = own_memfd(h, from);
	}
	cow__share_enter();
	if (r == 0)
		r = table_add(h);
	if (r < 0)
		home_free(h);
	cow__share_leave();
	if (r == 0)
		*ret = h;
	return r;
}

/* Sets the address of its bytes: in a mapping of its own, or within the pack's. */
static int
place_bytes(struct cow__home *h, const struct cow__home_key *key)
{
	h->under = key->pack ? diverged(key) : NULL;
	/* A severed pack's addresses are not the file's. */
	if (h->under || (key->pack && key->pack->severed))
		return map_file(h, &key->pack->file, cow__home_offset(h));
	if (!key->pack)
		return map_file(h, &h->file, h->offset);
	h->data = cow__pack_data(key->pack, key->at.page);
	return 0;
}

int
cow__home_open(enum cow__home_kind kind, const struct cow__home_key *key,
               struct cow__descriptor *file, size_t bytes,
               struct cow__home **ret)
{
	struct cow__home *h = cow__home_find(key);
	int r;

	if (h) {
		if (h->kind != kind || h->bytes != bytes)
			return -EBADMSG;
		h->refs++;
		*ret = h;
		return 0;
	}
	h = cow__pool_take(&homes);
	if (!h)
		return -ENOMEM;
	*h = (struct cow__home){
		.refs = 1,
		.kind = (uint8_t)kind,
		.pack = key->pack,
		.at = key->at,
		.file = key->pack ? COW__NO_DESCRIPTOR : *file,
		.offset = key->offset,
		.bytes = bytes,
		.exact = key->offset == 0 && key->file_bytes == bytes,
	};
	r = place_bytes(h, key);
	if (r == 0)
		r = table_add(h);
	if (r < 0) {
		if (h->mapping)
			(void)cow__map_release(h->mapping, h->mapped);
		cow__pool_give(&homes, h);
		return r;
	}
	if (h->under) {
		h->under->refs++;
	} else if (key->pack) {
		key->pack->homes++;
		key->pack->group->refs++;
	} else {
		*file = COW__NO_DESCRIPTOR;
	}
	*ret = h;
	return 0;
}

/* A sealed file does not change, so it is looked into once. */
bool
cow__home_exact(struct cow__home *h)
{
	if (!h->exact && !h->looked)
		h->exact = cow__memfd_holds_only(&h->file, h->offset, h->bytes);
	h->looked = true;
	return h->exact;
}

void
cow__home_renew(struct cow__home *h)
{
	table_remove(h);
	h->at.generation = cow__pack_renew(h->pack, h->at.page);
	insert(h);
	used++;
}

void
cow__homes_fork(void)
{
	for (struct cow__home *h = making; h; h = h->next)
		h->diverged = !h->pack->alias;
	for (size_t i = 0; i < slots; i++)
		for (struct cow__home *h = table[i]; h; h = h->next)
			if (h->writable && h->pack && !h->pack->alias)
				/* home_view() reads it without the lock. */
				__atomic_store_n(&h->diverged, true, __ATOMIC_RELAXED);
}

static bool
lies_in(const struct cow__home *h, const struct cow__pack *p)
{
	return h->pack == p && !h->mapping;
}

int
cow__homes_copy(struct cow__pack *p, size_t *ret_bytes)
{
	size_t pages = 0, done = 0;
	void *copy = NULL;
	int r;

	for (size_t i = 0; i < slots; i++)
		for (struct cow__home *h = table[i]; h; h = h->next)
			if (lies_in(h, p))
				pages = cow__max(pages, (size_t)h->at.page +
				                                h->at.pages);
	if (pages) {
		r = cow__map_meta(pages * cow__page, &copy);
		if (r < 0)
			return r;
	}
	p->copy = copy;
	p->copied = pages * cow__page;
	for (size_t i = 0; i < slots; i++)
		for (struct cow__home *h = table[i]; h; h = h->next)
			if (lies_in(h, p)) {
				memcpy((char *)copy + h->at.page * cow__page,
				       h->data, h->bytes);
				done += h->bytes;
			}
	p->severed = true;
	cow__stat_add(bytes_copied, done);
	*ret_bytes = done;
	return 0;
}

void
cow__homes_child(void)
{
	struct cow__home *h;

	while ((h = making) != NULL) {
		making = h->next;
		leave_pack(h);
		cow__pool_give(&homes, h);
	}
}
