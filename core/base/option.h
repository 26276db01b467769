/* SPDX-License-Identifier: MIT */
/*
 * Options: how a room lists the ones it has
 *
 * Each room with options fills a table of them (core/memory/options.c,
 * core/cow/options.c). core/options.c searches all tables. docs/options.md lists
 * the options for users.
 */
#ifndef COW_CORE_BASE_OPTION_H
#define COW_CORE_BASE_OPTION_H

#include <stdbool.h>
#include <stdint.h>

struct cow__option {
	const char *key; /* NULL ends a table */
	/* 0. -EINVAL: not a value for this option. -EBUSY: too late, since memory
	 * is in use. Engine locked. */
	int (*set)(const char *value);
};

/* "64K", "2M", "1G", "4096": bytes. False if it is none of these. */
bool cow__parse_bytes(const char *s, uint64_t *ret);

/* "1", "yes", "on"; "0", "no", "off". False if it is none of these. */
bool cow__parse_flag(const char *s, bool *ret);

#endif
