/* SPDX-License-Identifier: MIT */
/*
 * Options of the engine: the tables of all folders, and the call that sets an
 * option
 */
#include "core/options.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/settings.h"
#include "core/cow/options.h"
#include "core/memory/helper.h"
#include "core/memory/options.h"
#include "core/memory/state.h"

COW_EXPORT bool cow__option_cuda_poison;

static int
set_cuda_poison(const char *value, bool apply)
{
	bool on;

	if (!cow__parse_flag(value, &on))
		return -EINVAL;
	if (apply)
		__atomic_store_n(&cow__option_cuda_poison, on, __ATOMIC_RELAXED);
	return 0;
}

static const struct cow__option above[] = {
	{ "cuda-poison", COW__TAKES_FLAG, set_cuda_poison },
	{ NULL, NULL, NULL },
};

/* The shim's own, which it reads itself at its start. */

static int
check_bytes(const char *value, bool apply)
{
	uint64_t n;

	(void)apply;
	return cow__parse_bytes(value, &n) ? 0 : -EINVAL;
}

static int
check_quiet(const char *value, bool apply)
{
	(void)apply;
	return strcmp(value, "signal") && strcmp(value, "blocked") ? -EINVAL : 0;
}

static int
check_report(const char *value, bool apply)
{
	(void)apply;
	(void)value; /* cow__option_next() passes none that is too long */
	return 0;
}

static const struct cow__option of_shim[] = {
	{ "threshold", COW__TAKES_BYTES, check_bytes },
	{ "mmap", COW__TAKES_BYTES, check_bytes },
	{ "quiet", "this option takes blocked or signal", check_quiet },
	{ "report", "this option takes a path of at most 255 characters", check_report },
	{ NULL, NULL, NULL },
};

static const struct cow__option *const tables[] = {
	cow__memory_options,
	cow__cow_options,
	above,
	of_shim, /* the last one */
};

static const struct cow__option *
find_option(const char *key, bool shim)
{
	size_t n = sizeof(tables) / sizeof(tables[0]) - !shim;

	for (size_t i = 0; i < n; i++)
		for (const struct cow__option *o = tables[i]; o->key; o++)
			if (!strcmp(key, o->key))
				return o;
	return NULL;
}

static int
set(const struct cow__option *o, const char *value)
{
	bool helper;
	int r;

	cow__engine_lock();
	helper = cow__engine.use_helper;
	r = o->set(value, true);
	if (r == 0)
		cow__settings_note(o->key, value);
	helper &= !cow__engine.use_helper;
	cow__engine_unlock();
	if (helper) { /* the one that runs ends, too */
		cow__helper_suspend();
		cow__helper_resume();
	}
	return r;
}

static int
no_such_option(const char *key)
{
	cow__error_begin();
	cow__error_add("there is no option '");
	cow__error_add(key);
	cow__error_add("'");
	return -ENOENT;
}

COW_EXPORT int
cow_option_set(const char *key, const char *value)
{
	const struct cow__option *o;
	int r;

	if (!key || !value)
		return cow__error(-EINVAL, "cow_option_set: NULL");
	o = find_option(key, false);
	if (!o && find_option(key, true))
		return cow__error(-ENOENT, "this option is the shim's: COWSHED_OPTIONS sets it "
		                           "before the program starts");
	if (!o)
		return no_such_option(key);
	r = set(o, value);
	if (r == -EBUSY)
		return cow__error(r, "this option can only be set before the "
		                     "first allocation");
	return r < 0 ? cow__error(r, o->takes) : 0;
}

COW_EXPORT int
cow__option_check(const struct cow__pair *p)
{
	const struct cow__option *o = find_option(p->key, true);

	if (!o)
		return no_such_option(p->key);
	return o->set(p->value, false) < 0 ? cow__error(-EINVAL, o->takes) : 0;
}

COW_EXPORT int
cow_options_check(const char *list, const char **ret_at, size_t *ret_bytes)
{
	struct cow__pair p;
	int r;

	if (!list)
		return cow__error(-EINVAL, "cow_options_check: NULL");
	while ((r = cow__option_next(&list, &p)) > 0) {
		r = cow__option_check(&p);
		if (r < 0)
			break;
	}
	if (r == 0)
		return 0;
	if (!p.key[0])
		cow__error(r, r == -ENOENT ? "there is no option with so long a name"
		                           : "an option is KEY=VALUE, and a value has at most "
		                             "255 bytes");
	if (ret_at)
		*ret_at = p.start;
	if (ret_bytes)
		*ret_bytes = p.bytes;
	return r;
}
