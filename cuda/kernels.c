/* SPDX-License-Identifier: MIT */
/*
 * Kernels: loads modules and launches functions. See the header.
 *
 * Loading allocates on the host, so its lock is one of libc. A function that was looked up
 * before is found without a lock.
 */
#include "cuda/kernels.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/pool.h"

#include <pthread.h>

#define WHICH 6 /* kernels of a family, at most */

/* The images of the files in cuda/kernels/. */
extern const char cow__image_move[], cow__image_move_end[];
extern const char cow__image_convert[], cow__image_convert_end[];
extern const char cow__image_turn[], cow__image_turn_end[];

enum { MOVE, CONVERT, TURN, MODULES };

static const struct {
	const char *start, *end;
} images[MODULES] = {
	[MOVE] = { cow__image_move, cow__image_move_end },
	[CONVERT] = { cow__image_convert, cow__image_convert_end },
	[TURN] = { cow__image_turn, cow__image_turn_end },
};

#define BY_BYTES(family)                                                       \
	{                                                                      \
		{ #family "_1_32", #family "_1_64" },                          \
		{ #family "_2_32", #family "_2_64" },                          \
		{ #family "_4_32", #family "_4_64" },                          \
		{ #family "_8_32", #family "_8_64" },                          \
		{ #family "_16_32", #family "_16_64" },                        \
	}
#define BY_KIND(family)                                                        \
	{                                                                      \
		{ #family "_I_32", #family "_I_64" },                          \
		{ #family "_U_32", #family "_U_64" },                          \
		{ #family "_F_32", #family "_F_64" },                          \
		{ #family "_D_32", #family "_D_64" },                          \
		{ #family "_CF_32", #family "_CF_64" },                        \
		{ #family "_CD_32", #family "_CD_64" },                        \
	}
static const struct {
	int module;
	unsigned x, y; /* threads of a block */
	const char *names[WHICH][2];
} families[COW__CUDA_FAMILIES] = {
	[COW__CUDA_ROWS] = { MOVE, COW__KERNEL_THREADS, 1, BY_BYTES(cow__rows) },
	[COW__CUDA_NEGATE] = { MOVE, COW__KERNEL_THREADS, 1, BY_BYTES(cow__negate) },
	[COW__CUDA_TILES] = { MOVE, COW__KERNEL_TILE, 8, BY_BYTES(cow__tiles) },
	[COW__CUDA_CONVERT] = { CONVERT, COW__KERNEL_THREADS, 1, BY_KIND(cow__convert) },
	[COW__CUDA_TURN] = { TURN, COW__KERNEL_TILE, 8, BY_KIND(cow__turn) },
};

struct cow__cuda_kernels {
	pthread_mutex_t lock;
	struct cow__cu_module *modules[MODULES];
	bool unfit[MODULES]; /* the module has no code for this device */
	struct cow__cu_function *functions[COW__CUDA_FAMILIES][WHICH][2];
};

static struct cow__pool pool = { .object_bytes = sizeof(struct cow__cuda_kernels) };

static const void *
image(int module)
{
	const void *own = cow__cu_own_kernels();

	if (own)
		return own;
	return images[module].start < images[module].end ? images[module].start
	                                                 : NULL;
}

int
cow__cuda_kernels_kind(void)
{
	if (cow__cu_own_kernels())
		return COW_CUDA_KERNELS_DRIVER;
	return image(MOVE) ? COW_CUDA_KERNELS_EMBEDDED : COW_CUDA_KERNELS_NONE;
}

int
cow__cuda_kernels_start(struct cow__cuda *d)
{
	struct cow__cuda_kernels *k;

	if (d->kernels || !image(MOVE))
		return 0;
	k = cow__pool_take(&pool);
	if (!k)
		return cow__error(-ENOMEM, "no memory for a device's kernels");
	memset(k, 0, sizeof(*k));
	pthread_mutex_init(&k->lock, NULL);
	d->kernels = k;
	return 0;
}

static int
load_module(struct cow__cuda *d, int module)
{
	struct cow__cuda_kernels *k = d->kernels;
	int r;

	if (k->unfit[module])
		return -ENOTSUP;
	if (k->modules[module])
		return 0;
	r = cow__cu_error(d->cu->module_load(&k->modules[module], image(module)),
	                  "loading kernels");
	/* There is no code for this device: its copies are staged. A shortage may pass. */
	if (r == -ENOEXEC) {
		k->unfit[module] = true;
		return -ENOTSUP;
	}
	return r;
}

static int
find_kernel(struct cow__cuda *d, enum cow__cuda_family family, int which, int form,
            struct cow__cu_function **ret)
{
	struct cow__cuda_kernels *k = d->kernels;
	struct cow__cu_function **place = &k->functions[family][which][form];
	int r;

	/* Pairs with the store below. */
	*ret = __atomic_load_n(place, __ATOMIC_ACQUIRE);
	if (*ret)
		return 0;
	pthread_mutex_lock(&k->lock);
	r = load_module(d, families[family].module);
	if (r == 0)
		r = cow__cu_error(d->cu->module_get_function(
		                          ret, k->modules[families[family].module],
		                          families[family].names[which][form]),
		                  "looking for a kernel");
	if (r == 0)
		__atomic_store_n(place, *ret, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&k->lock);
	return r;
}

int
cow__cuda_launch(struct cow__cuda *d, struct cow__cu_stream *stream,
                 enum cow__cuda_family family, int which, int form,
                 uint64_t blocks, const struct cow__kernel_job *job)
{
	void *parameters[] = { (void *)(uintptr_t)job };
	struct cow__cu_function *f;
	int r;

	if (!d->kernels || blocks > INT32_MAX)
		return -ENOTSUP;
	r = find_kernel(d, family, which, form, &f);
	if (r < 0)
		return r;
	return cow__cu_error(d->cu->launch(f, (unsigned)blocks, 1, 1,
	                                   families[family].x,
	                                   families[family].y, 1, 0, stream,
	                                   parameters, NULL),
	                     "launching a kernel");
}
