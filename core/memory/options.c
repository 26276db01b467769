/* SPDX-License-Identifier: MIT */
/*
 * Options of this folder: how each is set. docs/options.md describes them.
 */
#include "core/memory/options.h"
#include "core/base/base.h"
#include "core/memory/own_segment.h"
#include "core/memory/state.h"
#include "memfd/pins.h"

static int
set_flag(const char *value, bool apply, bool *ret)
{
	bool on;

	if (!cow__parse_flag(value, &on))
		return -EINVAL;
	if (apply)
		*ret = on;
	return 0;
}

static int
set_backing(const char *value, bool apply)
{
	enum cow__policy policy;

	if (!strcmp(value, "auto"))
		policy = COW__POLICY_AUTO;
	else if (!strcmp(value, "memfd"))
		policy = COW__POLICY_MEMFD;
	else if (!strcmp(value, "anon"))
		policy = COW__POLICY_ANON;
	else
		return -EINVAL;
	if (apply)
		cow__engine.policy = policy;
	return 0;
}

static int
set_border(const char *value, bool apply)
{
	enum cow__border border;

	if (!strcmp(value, "auto"))
		border = COW__BORDER_AUTO;
	else if (!strcmp(value, "calls"))
		border = COW__BORDER_CALLS;
	else if (!strcmp(value, "fork"))
		border = COW__BORDER_FORK;
	else if (!strcmp(value, "copies"))
		border = COW__BORDER_COPIES;
	else
		return -EINVAL;
	if (apply)
		cow__engine.border = border;
	return 0;
}

static int
set_window(const char *value, bool apply)
{
	uint64_t n;

	if (!cow__parse_bytes(value, &n) || n < GIB)
		return -EINVAL;
	if (!apply)
		return 0;
	if (cow__engine.ready)
		return -EBUSY;
	cow__engine.window_bytes = cow__round_down(n, GIB);
	return 0;
}

static int
set_helper(const char *value, bool apply)
{
	return set_flag(value, apply, &cow__engine.use_helper);
}

static int
set_collapse(const char *value, bool apply)
{
	return set_flag(value, apply, &cow__engine.use_collapse);
}

static int
set_strict(const char *value, bool apply)
{
	return set_flag(value, apply, &cow__engine.strict);
}

static int
set_share(const char *value, bool apply)
{
	bool on;

	if (!cow__parse_flag(value, &on))
		return -EINVAL;
	if (apply)
		cow__own_segments_ask(on);
	return 0;
}

static int
set_warm(const char *value, bool apply)
{
	uint64_t n;

	if (!cow__parse_bytes(value, &n))
		return -EINVAL;
	if (apply)
		cow__engine.warm_max = n;
	return 0;
}

static int
set_decay(const char *value, bool apply)
{
	uint64_t n;

	if (!cow__parse_bytes(value, &n) || n > 3600000)
		return -EINVAL;
	if (apply)
		cow__engine.decay_ns = n * 1000000u;
	return 0;
}

static int
set_devices(const char *value, bool apply)
{
	return cow__pins_name(value, apply);
}

const struct cow__option cow__memory_options[] = {
	{ "backing", "this option takes auto, memfd or anon", set_backing },
	{ "border", "this option takes auto, calls, fork or copies", set_border },
	{ "devices", "this option takes paths with colons between, at most 254 bytes", set_devices },
	{ "window", "this option takes a number of bytes, at least 1G", set_window },
	{ "helper", COW__TAKES_FLAG, set_helper },
	{ "collapse", COW__TAKES_FLAG, set_collapse },
	{ "strict", COW__TAKES_FLAG, set_strict },
	{ "share", COW__TAKES_FLAG, set_share },
	{ "warm", COW__TAKES_BYTES, set_warm },
	{ "decay", "this option takes milliseconds, at most 3600000", set_decay },
	{ NULL, NULL, NULL },
};
