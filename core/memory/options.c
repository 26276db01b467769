/* SPDX-License-Identifier: MIT */
/*
 * Options of this room: how each is set. docs/options.md describes them.
 */
#include "core/memory/options.h"
#include "core/base/base.h"
#include "core/memory/own_segment.h"
#include "core/memory/state.h"
#include "memfd/pins.h"

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
set_border(const char *value)
{
	if (!strcmp(value, "auto"))
		cow__engine.border = COW__BORDER_AUTO;
	else if (!strcmp(value, "calls"))
		cow__engine.border = COW__BORDER_CALLS;
	else if (!strcmp(value, "fork"))
		cow__engine.border = COW__BORDER_FORK;
	else if (!strcmp(value, "copies"))
		cow__engine.border = COW__BORDER_COPIES;
	else
		return -EINVAL;
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
set_helper(const char *value)
{
	return cow__parse_flag(value, &cow__engine.use_helper) ? 0 : -EINVAL;
}

static int
set_collapse(const char *value)
{
	return cow__parse_flag(value, &cow__engine.use_collapse) ? 0 : -EINVAL;
}

static int
set_strict(const char *value)
{
	return cow__parse_flag(value, &cow__engine.strict) ? 0 : -EINVAL;
}

static int
set_share(const char *value)
{
	bool on;

	if (!cow__parse_flag(value, &on))
		return -EINVAL;
	cow__own_segments_ask(on);
	return 0;
}

static int
set_warm(const char *value)
{
	uint64_t n;

	if (!cow__parse_bytes(value, &n))
		return -EINVAL;
	cow__engine.warm_max = n;
	return 0;
}

static int
set_decay(const char *value)
{
	uint64_t n;

	if (!cow__parse_bytes(value, &n) || n > 3600000)
		return -EINVAL;
	cow__engine.decay_ns = n * 1000000u;
	return 0;
}

const struct cow__option cow__memory_options[] = {
	{ "backing", set_backing },
	{ "border", set_border },
	{ "devices", cow__pins_name },
	{ "window", set_window },
	{ "helper", set_helper },
	{ "collapse", set_collapse },
	{ "strict", set_strict },
	{ "share", set_share },
	{ "warm", set_warm },
	{ "decay", set_decay },
	{ NULL, NULL },
};
