/* SPDX-License-Identifier: MIT */
/*
 * COWSHED_OPTIONS=key=value,key=value
 *
 * threshold, mmap, quiet and report are the shim's own keys; the others are the engine's. A key
 * that is unknown or has a wrong value is ignored: a program must not fail, or print what is not
 * its own, because of a typing error in a shell profile. `cowshed stat`, `top`, `doctor` and the
 * report name such keys.
 *
 * Where memfds cost a program more than libc's memory, blocks are left to libc, unless
 * threshold, backing or share is set.
 */
#include "preload/preload.h"

#include "core/base/feature.h"
#include "core/base/settings.h"
#include "core/options.h"

#include <cowshed.h>

#include <stdlib.h>
#include <string.h>

#define THRESHOLD ((size_t)1 << 20)

static char report_path[sizeof(((struct cow__pair *)0)->value)];
static size_t map_threshold = SIZE_MAX;
static bool stops;
static bool asked; /* for memory of the engine */

const char *
preload_report_path(void)
{
	return report_path;
}

size_t
preload_option_mmap(void)
{
	return map_threshold;
}

bool
preload_option_stops(void)
{
	return stops;
}

/* One of the shim's own, whose value is valid. False: it is the engine's. */
static bool
take_own_option(const struct cow__pair *p)
{
	uint64_t n = 0;

	if (!strcmp(p->key, "threshold")) {
		(void)cow__parse_bytes(p->value, &n);
		preload_threshold = n ? n : 1;
		asked = true;
	} else if (!strcmp(p->key, "mmap")) {
		(void)cow__parse_bytes(p->value, &n);
		map_threshold = n ? n : SIZE_MAX;
	} else if (!strcmp(p->key, "quiet")) {
		stops = p->value[0] == 's';
	} else if (!strcmp(p->key, "report")) {
		strcpy(report_path, p->value);
	} else {
		return false;
	}
	return true;
}

static bool
one(const struct cow__pair *p)
{
	if (cow__option_check(p) < 0)
		return false;
	if (take_own_option(p)) {
		cow__settings_note(p->key, p->value);
		return true;
	}
	if (cow_option_set(p->key, p->value) < 0)
		return false;
	asked |= !strcmp(p->key, "backing") || !strcmp(p->key, "share");
	return true;
}

static void
read_all(const char *list)
{
	struct cow__pair p;
	int r;

	while (list && (r = cow__option_next(&list, &p)))
		if (r < 0 || !one(&p))
			cow__settings_refused(p.start, p.bytes);
}

void
preload_options_read(void)
{
	preload_threshold = THRESHOLD;
	read_all(secure_getenv("COWSHED_OPTIONS"));
	if (!asked && cow__memfds_are_slow())
		preload_threshold = SIZE_MAX;
}
