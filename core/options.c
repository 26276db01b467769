/* SPDX-License-Identifier: MIT */
/*
 * Options of the engine: see the header. Reading the environment is the
 * business of who has one (the shim, the command).
 */
#include "core/options.h"
#include "core/base.h"
#include "core/engine.h"
#include "core/error.h"
#include "core/give.h"

COW_EXPORT bool
cow__parse_bytes(const char *s, uint64_t *ret)
{
	uint64_t n = 0;
	unsigned shift = 0;

	if (!s || *s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
			return false;
	if (*s == 'K' || *s == 'k')
		shift = 10;
	else if (*s == 'M' || *s == 'm')
		shift = 20;
	else if (*s == 'G' || *s == 'g')
		shift = 30;
	else if (*s == 'T' || *s == 't')
		shift = 40;
	if (shift && *++s == 'i')
		s++;
	if (shift && *s == 'B')
		s++;
	if (*s || (n << shift) >> shift != n)
		return false;
	*ret = n << shift;
	return true;
}

static bool
parse_flag(const char *s, bool *ret)
{
	bool on = !strcmp(s, "1") || !strcmp(s, "yes") || !strcmp(s, "on");

	if (!on && strcmp(s, "0") && strcmp(s, "no") && strcmp(s, "off"))
		return false;
	*ret = on;
	return true;
}

static int
set_backing(const char *value)
{
	if (!strcmp(value, "auto"))
		cow__engine.policy = COW__POLICY_AUTO;
	else if (!strcmp(value, "memfd"))
		cow__engine.policy = COW__POLICY_MEMFD;
	else if (!strcmp(value, "anon"))
		cow__engine.policy = COW__POLICY_ANON;
	else
		return -EINVAL;
	return 0;
}

static int
set_copies(const char *value)
{
	enum cow__copies copies;

	if (!strcmp(value, "off"))
		copies = COW__COPIES_OFF;
	else if (!strcmp(value, "auto"))
		copies = COW__COPIES_AUTO;
	else if (!strcmp(value, "lazy"))
		copies = COW__COPIES_LAZY;
	else
		return -EINVAL;
	/* Copies look without the lock. */
	__atomic_store_n(&cow__engine.copies, copies, __ATOMIC_RELAXED);
	return 0;
}

static int
set_window(const char *value)
{
	uint64_t n;

	if (!cow__parse_bytes(value, &n) || n < GIB)
		return -EINVAL;
	if (cow__engine.ready)
		return -EBUSY;
	cow__engine.window_bytes = cow__round_down(n, GIB);
	return 0;
}

static int
set_share(const char *value)
{
	bool on;

	if (!parse_flag(value, &on))
		return -EINVAL;
	cow__give_ask(on);
	return 0;
}

bool cow__option_cuda_poison;

static int
set_cuda_poison(const char *value)
{
	bool on;

	if (!parse_flag(value, &on))
		return -EINVAL;
	__atomic_store_n(&cow__option_cuda_poison, on, __ATOMIC_RELAXED);
	return 0;
}

static int
set_locked(const char *key, const char *value)
{
	uint64_t n;

	if (!strcmp(key, "backing"))
		return set_backing(value);
	if (!strcmp(key, "copies"))
		return set_copies(value);
	if (!strcmp(key, "window"))
		return set_window(value);
	if (!strcmp(key, "helper"))
		return parse_flag(value, &cow__engine.use_helper) ? 0 : -EINVAL;
	if (!strcmp(key, "collapse"))
		return parse_flag(value, &cow__engine.use_collapse) ? 0
		                                                    : -EINVAL;
	if (!strcmp(key, "strict"))
		return parse_flag(value, &cow__engine.strict) ? 0 : -EINVAL;
	if (!strcmp(key, "share"))
		return set_share(value);
	if (!strcmp(key, "cuda-poison"))
		return set_cuda_poison(value);
	if (!strcmp(key, "warm")) {
		if (!cow__parse_bytes(value, &n))
			return -EINVAL;
		cow__engine.warm_max = n;
		return 0;
	}
	if (!strcmp(key, "decay")) {
		if (!cow__parse_bytes(value, &n) || n > 3600000)
			return -EINVAL;
		cow__engine.decay_ns = n * 1000000u;
		return 0;
	}
	return -ENOENT;
}

COW_EXPORT int
cow_option_set(const char *key, const char *value)
{
	int r;

	if (!key || !value)
		return cow__error(-EINVAL, "cow_option_set: NULL");
	cow__engine_lock();
	r = set_locked(key, value);
	cow__engine_unlock();
	if (r == -ENOENT)
		return cow__error(r, "no such option");
	if (r == -EBUSY)
		return cow__error(r, "this option comes too late: memory is "
		                     "in use");
	return r < 0 ? cow__error(r, "not a value for this option") : 0;
}

COW_EXPORT const char *
cow_version(void)
{
#define STRING_(x) #x
#define STRING(x) STRING_(x)
	return STRING(COW_VERSION_MAJOR) "." STRING(
	        COW_VERSION_MINOR) "." STRING(COW_VERSION_PATCH);
}
