/* SPDX-License-Identifier: MIT */
/*
 * Pieces, ranges and maps. See the header.
 *
 * The driver has one access list for each map, and forgets it with the map. So this file
 * keeps the devices that may reach a device's memory as bits, and gives each new map access
 * for all of them in one call.
 */
#include "cuda/piece.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "core/base/tree.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

struct map {
	struct cow__node node; /* key: address */
	size_t bytes;
	bool writable;
};

static struct cow__pool pieces = {
	.object_bytes = sizeof(struct cow__cuda_piece)
};
static struct cow__pool maps = { .object_bytes = sizeof(struct map) };

/* The state of this file, for each device. */
static struct known {
	struct cow__mutex lock; /* of the maps; after the device's memory lock */
	struct cow__node *maps;
	uint64_t readers; /* bit n: device n may reach it, too */
	struct cow__cuda_piece *stuck;
	uint64_t made;    /* bytes that this process made; atomic */
} known[COW_DEVICE_INDEXES];

uint64_t
cow__cuda_made_bytes(const struct cow__cuda *d)
{
	return __atomic_load_n(&known[d->index].made, __ATOMIC_RELAXED);
}

int
cow__cuda_made_add(struct cow__cuda *d, size_t bytes)
{
	uint64_t limit = cow__cuda_limit_bytes(d);
	uint64_t *made = &known[d->index].made;
	uint64_t now = __atomic_load_n(made, __ATOMIC_RELAXED);

	do
		if (bytes > limit || now > limit - bytes)
			return -ENOMEM;
	while (!__atomic_compare_exchange_n(made, &now, now + bytes, true,
	                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return 0;
}

void
cow__cuda_made_sub(struct cow__cuda *d, size_t bytes)
{
	__atomic_fetch_sub(&known[d->index].made, bytes, __ATOMIC_RELAXED);
}

static struct cow__cu_prop
prop_of(const struct cow__cuda *d)
{
	return (struct cow__cu_prop){
		.type = COW_CU_ALLOCATION_PINNED,
		.handle_types = d->can_share ? COW_CU_HANDLE_FD
		                             : COW_CU_HANDLE_NONE,
		.location = { COW_CU_LOCATION_DEVICE, d->handle },
	};
}

static bool
release(struct cow__cuda_piece *p)
{
	struct cow__cuda *d = p->device;

	if (d->cu->mem_release(p->handle) != COW_CU_SUCCESS)
		return false;
	if (!p->imported)
		cow__cuda_made_sub(d, p->bytes);
	cow__pool_give(&pieces, p);
	return true;
}

/* Keeps a piece that the driver did not take back. It is tried again before more is made. */
static void
stick(struct cow__cuda_piece *p)
{
	struct known *k = &known[p->device->index];

	cow__mutex_lock(&k->lock);
	p->next = k->stuck;
	__atomic_store_n(&k->stuck, p, __ATOMIC_RELAXED);
	cow__mutex_unlock(&k->lock);
}

void
cow__cuda_pieces_retry(struct cow__cuda *d)
{
	struct known *k = &known[d->index];
	struct cow__cuda_piece *p, *next;

	if (cow__likely(!__atomic_load_n(&k->stuck, __ATOMIC_RELAXED)))
		return;
	cow__mutex_lock(&k->lock);
	p = k->stuck;
	__atomic_store_n(&k->stuck, NULL, __ATOMIC_RELAXED);
	cow__mutex_unlock(&k->lock);
	for (; p; p = next) {
		next = p->next;
		if (!release(p))
			stick(p);
	}
}

int
cow__cuda_piece_make(struct cow__cuda *d, size_t bytes,
                     struct cow__cuda_piece **ret)
{
	struct cow__cuda_piece *p = cow__pool_take(&pieces);
	struct cow__cu_prop prop = prop_of(d);
	int r;

	if (!p)
		return -ENOMEM;
	cow__cuda_pieces_retry(d);
	*p = (struct cow__cuda_piece){ .refs = 1, .device = d, .bytes = bytes };
	r = cow__cuda_made_add(d, bytes);
	if (r == 0) {
		r = cow__cu_error(d->cu->mem_create(&p->handle, bytes, &prop, 0),
		                  "making device memory");
		if (r < 0)
			cow__cuda_made_sub(d, bytes);
	}
	if (r < 0) {
		cow__pool_give(&pieces, p);
		return r;
	}
	*ret = p;
	return 0;
}

struct cow__cuda_piece *
cow__cuda_piece_ref(struct cow__cuda_piece *p)
{
	__atomic_fetch_add(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

static void
unref(struct cow__cuda_piece *p, void (*count)(struct cow__cuda *, size_t, int))
{
	const struct cow__cu *cu;

	if (!p || __atomic_fetch_sub(&p->refs, 1, __ATOMIC_ACQ_REL) > 1)
		return;
	if (cow__cu_start(&cu) < 0) {
		cow__pool_give(&pieces, p);
		return;
	}
	if (__atomic_load_n(&p->counted, __ATOMIC_RELAXED))
		count(p->device, p->bytes, -1);
	if (!release(p))
		stick(p);
}

void
cow__cuda_piece_unref(struct cow__cuda_piece *p)
{
	unref(p, cow__cuda_count_piece);
}

void
cow__cuda_piece_unref_locked(struct cow__cuda_piece *p)
{
	unref(p, cow__cuda_count_piece_locked);
}

int
cow__cuda_piece_import(struct cow__cuda *d, int fd, size_t bytes,
                       struct cow__cuda_piece **ret)
{
	struct cow__cuda_piece *p;
	int r;

	if (!d->can_share)
		return cow__error(-EOPNOTSUPP,
		                  "this device's memory can't be shared");
	p = cow__pool_take(&pieces);
	if (!p)
		return -ENOMEM;
	*p = (struct cow__cuda_piece){
		.refs = 1, .device = d, .bytes = bytes, .imported = true,
	};
	r = cow__cu_error(d->cu->mem_import(&p->handle, (void *)(intptr_t)fd,
	                                    COW_CU_HANDLE_FD),
	                  "receiving device memory");
	if (r < 0) {
		cow__pool_give(&pieces, p);
		return r;
	}
	*ret = p;
	return 0;
}

int
cow__cuda_piece_export(struct cow__cuda_piece *p, int *ret_fd)
{
	struct cow__cuda *d = p->device;
	int fd = -1, r;

	if (!d->can_share)
		return cow__error(-EOPNOTSUPP,
		                  "this device's memory can't be shared");
	r = cow__cu_error(d->cu->mem_export(&fd, p->handle, COW_CU_HANDLE_FD, 0),
	                  "making a descriptor of device memory");
	if (r == 0)
		*ret_fd = fd;
	return r;
}

/* ---- Addresses ----------------------------------------------------------------- */

int
cow__cuda_range_new(struct cow__cuda *d, size_t bytes, cow__cu_ptr *ret)
{
	return cow__cu_error(d->cu->mem_address_reserve(ret, bytes, d->granule, 0,
	                                                0),
	                     "reserving addresses for device memory");
}

void
cow__cuda_range_free(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes)
{
	/* If it fails, only addresses are lost. */
	(void)d->cu->mem_address_free(ptr, bytes);
}

static int
set_access(const struct cow__cuda *d, const struct map *m, uint64_t readers)
{
	struct cow__cu_access list[COW_DEVICE_INDEXES];
	unsigned flags = m->writable ? COW_CU_ACCESS_READWRITE
	                             : COW_CU_ACCESS_READ;
	size_t n = 0;

	for (int i = 0; i < COW_DEVICE_INDEXES; i++) {
		struct cow__cuda *other;

		if (i != d->index && !(readers >> i & 1))
			continue;
		/* While the devices are being started, no other one is there yet. */
		if (i != d->index && cow__cuda_get(i, &other) < 0)
			continue;
		list[n].location = (struct cow__cu_location){
			COW_CU_LOCATION_DEVICE,
			i == d->index ? d->handle : other->handle
		};
		list[n++].flags = flags;
	}
	return cow__cu_error(d->cu->mem_set_access(m->node.key, m->bytes, list, n),
	                     "opening device memory");
}

int
cow__cuda_range_map(struct cow__cuda *d, cow__cu_ptr ptr,
                    const struct cow__cuda_piece *piece, bool writable)
{
	struct known *k = &known[d->index];
	struct map *m = cow__pool_take(&maps);
	int r;

	if (!m)
		return -ENOMEM;
	*m = (struct map){ .node.key = ptr, .bytes = piece->bytes,
		           .writable = writable };
	r = cow__cu_error(d->cu->mem_map(ptr, piece->bytes, 0, piece->handle, 0),
	                  "mapping device memory");
	if (r < 0) {
		cow__pool_give(&maps, m);
		return r;
	}
	cow__mutex_lock(&k->lock);
	r = set_access(d, m, k->readers);
	if (r == 0)
		cow__tree_insert(&k->maps, &m->node);
	cow__mutex_unlock(&k->lock);
	if (r < 0) {
		(void)d->cu->mem_unmap(ptr, piece->bytes);
		cow__pool_give(&maps, m);
	}
	return r;
}

int
cow__cuda_range_unmap(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes)
{
	struct known *k = &known[d->index];
	cow__cu_ptr at = ptr + bytes;
	int r = 0;

	cow__mutex_lock(&k->lock);
	while (r == 0 && at > ptr) {
		struct map *m = (struct map *)cow__tree_floor(k->maps, at - 1);

		if (!m || m->node.key < ptr)
			break;
		at = m->node.key;
		r = cow__cu_error(d->cu->mem_unmap(at, m->bytes),
		                  "unmapping device memory");
		if (r == 0) {
			cow__tree_remove(&k->maps, &m->node);
			cow__pool_give(&maps, m);
		}
	}
	cow__mutex_unlock(&k->lock);
	return r;
}

/* Lets device `by` reach all maps of `d`, those that are there and later ones. */
static int
maps_open(const struct cow__cuda *d, const struct cow__cuda *by)
{
	struct known *k = &known[d->index];
	uint64_t readers;
	int r = 0;

	cow__mutex_lock(&k->lock);
	readers = k->readers | (uint64_t)1 << by->index;
	if (readers != k->readers)
		for (struct map *m = (struct map *)cow__tree_floor(k->maps,
		                                                   UINTPTR_MAX);
		     m && r == 0;
		     m = m->node.key ? (struct map *)cow__tree_floor(
		                               k->maps, m->node.key - 1)
		                     : NULL)
			r = set_access(d, m, readers);
	if (r == 0)
		k->readers = readers;
	cow__mutex_unlock(&k->lock);
	return r;
}

int
cow__cuda_reach(struct cow__cuda *d, const struct cow__cuda *peer)
{
	uint64_t bit = (uint64_t)1 << peer->index;
	enum cow__cu_result result;

	if (__atomic_load_n(&d->peers_on, __ATOMIC_RELAXED) & bit)
		return 0;
	if (!(d->peers & bit))
		return cow__error(-EOPNOTSUPP,
		                  "the device can't reach the other one's memory");
	result = d->cu->enable_peer(peer->context, 0);
	/* Another library of the process may have enabled it. */
	if (result != COW_CU_PEER_ACCESS_ALREADY_ENABLED) {
		int r = cow__cu_error(result, "letting a device reach another");

		if (r < 0)
			return r;
	}
	/* That call is for memory of cuMemAlloc. Ours is opened map by map. */
	if (peer->virtual_memory) {
		int r = maps_open(peer, d);

		if (r < 0)
			return r;
	}
	__atomic_fetch_or(&d->peers_on, bit, __ATOMIC_RELAXED);
	return 0;
}

struct making {
	size_t bytes;
	struct cow__cuda_piece *piece;
};

static int
try_(struct cow__cuda *d, void *arg)
{
	struct making *m = arg;

	return cow__cuda_piece_make(d, m->bytes, &m->piece);
}

int
cow__cuda_piece_new(struct cow__cuda *d, size_t bytes,
                    struct cow__cuda_piece **ret)
{
	struct making m = { .bytes = bytes };
	int r = cow__cuda_low(d, bytes, cow__cuda_stream(d), try_, &m);

	if (r == 0)
		*ret = m.piece;
	return r;
}
