/* SPDX-License-Identifier: MIT */
/*
 * Options of this folder: how each is set. docs/options.md describes them.
 */
#include "core/cow/options.h"
#include "core/base/base.h"
#include "core/memory/state.h"

static int
set_copies(const char *value, bool apply)
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
	/* cow__copy_lazily() reads it without the lock. */
	if (apply)
		__atomic_store_n(&cow__engine.copies, copies, __ATOMIC_RELAXED);
	return 0;
}

static int
set_heal(const char *value, bool apply)
{
	uint64_t n;

	if (!cow__parse_bytes(value, &n) || n > 50)
		return -EINVAL;
	if (apply)
		cow__engine.heal_percent = (unsigned)n;
	return 0;
}

const struct cow__option cow__cow_options[] = {
	{ "heal", "this option takes a percentage, at most 50", set_heal },
	{ "copies", "this option takes off, auto or lazy", set_copies },
	{ NULL, NULL, NULL },
};
