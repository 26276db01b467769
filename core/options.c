/* SPDX-License-Identifier: MIT */
/*
 * Options of the engine: the tables of all rooms, and the call that sets an
 * option
 */
#include "core/options.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/cow/options.h"
#include "core/memory/helper.h"
#include "core/memory/options.h"
#include "core/memory/state.h"

COW_EXPORT bool cow__option_cuda_poison;

static int
set_cuda_poison(const char *value)
{
	bool on;

	if (!cow__parse_flag(value, &on))
		return -EINVAL;
	__atomic_store_n(&cow__option_cuda_poison, on, __ATOMIC_RELAXED);
	return 0;
}

static const struct cow__option above[] = {
	{ "cuda-poison", set_cuda_poison },
	{ NULL, NULL },
};

static const struct cow__option *const tables[] = {
	cow__memory_options,
	cow__cow_options,
	above,
};

static int
set(const char *key, const char *value)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct cow__option *o = tables[i]; o->key; o++)
			if (!strcmp(key, o->key))
				return o->set(value);
	return -ENOENT;
}

COW_EXPORT int
cow_option_set(const char *key, const char *value)
{
	bool helper;
	int r;

	if (!key || !value)
		return cow__error(-EINVAL, "cow_option_set: NULL");
	cow__engine_lock();
	helper = cow__engine.use_helper;
	r = set(key, value);
	helper &= !cow__engine.use_helper;
	cow__engine_unlock();
	if (helper) { /* the one that runs ends, too */
		cow__helper_suspend();
		cow__helper_resume();
	}
	if (r == -ENOENT)
		return cow__error(r, "no such option");
	if (r == -EBUSY)
		return cow__error(r, "this option can only be set before the "
		                     "first allocation");
	return r < 0 ? cow__error(r, "not a valid value for this option") : 0;
}
