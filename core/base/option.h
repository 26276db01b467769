/* SPDX-License-Identifier: MIT */
/*
 * Options: how a folder lists the ones it has
 *
 * Each folder with options fills a table of them (core/memory/options.c,
 * core/cow/options.c). core/options.c searches all tables. docs/options.md lists
 * the options for users.
 */
#ifndef COW_CORE_BASE_OPTION_H
#define COW_CORE_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__option {
	const char *key;   /* NULL ends a table */
	const char *takes; /* the sentence of -EINVAL: what values it has */
	/* Sets it, or with `apply` false only looks at the value. 0. -EINVAL: not a value for
	 * this option. -EBUSY: too late, since memory is in use. Engine locked if `apply`. */
	int (*set)(const char *value, bool apply);
};

#define COW__TAKES_BYTES "this option takes a number of bytes, as 4096, 64K or 1M"
#define COW__TAKES_FLAG "this option takes yes or no"

/* One option of a list as COWSHED_OPTIONS has it. */
struct cow__pair {
	const char *start; /* in the list, without the blanks around it ... */
	size_t bytes;      /* ... and so long */
	char key[32];
	char value[256];
};

/*
 * Takes the next option of "key=value, key=value" from *list, and moves *list behind it.
 * Blanks around commas and equals signs do not count; empty parts are left out.
 *
 * 1: `ret` has it. 0: there is none any more. -EINVAL: it has no equals sign, no key, or a
 * value of more than 255 bytes; -ENOENT: its key is longer than any that exists. With an error
 * key and value are empty.
 */
int cow__option_next(const char **list, struct cow__pair *ret);

/* "64K", "2M", "1G", "4096": bytes. False if it is none of these. */
bool cow__parse_bytes(const char *s, uint64_t *ret);

/* "1", "yes", "on"; "0", "no", "off". False if it is none of these. */
bool cow__parse_flag(const char *s, bool *ret);

#endif
