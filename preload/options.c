/* SPDX-License-Identifier: MIT */
/*
 * COWSHED_OPTIONS=key=value,key=value
 *
 * threshold, mmap, quiet and report are the shim's own keys; the others are the engine's. The
 * report names the first key that is unknown or has a wrong value. Else such a key is
 * ignored: a program must not fail because of a typing error in a shell profile.
 *
 * Where memfds cost a program more than libc's memory, blocks are left to libc, unless
 * threshold, backing or share is set.
 */
#include "preload/preload.h"

#include "core/base/feature.h"
#include "core/base/option.h"

#include <cowshed.h>

#include <stdlib.h>
#include <string.h>

#define THRESHOLD ((size_t)1 << 20)

static char report_path[256];
static char unknown[64];
static size_t map_threshold = SIZE_MAX;
static bool stops;
static bool asked; /* for memory of the engine */

const char *
preload_report_path(void)
{
	return report_path;
}

const char *
preload_unknown_option(void)
{
	return unknown;
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

static bool
set_quiet(const char *value)
{
	if (strcmp(value, "signal") != 0 && strcmp(value, "calls") != 0)
		return false;
	stops = value[0] == 's';
	return true;
}

static void
one(char *key)
{
	char *value = strchr(key, '=');

	if (value && value > key) {
		*value++ = '\0';
		if (!strcmp(key, "threshold")) {
			uint64_t n;

			if (cow__parse_bytes(value, &n)) {
				preload_threshold = n ? n : 1;
				asked = true;
				return;
			}
		} else if (!strcmp(key, "mmap")) {
			uint64_t n;

			if (cow__parse_bytes(value, &n)) {
				map_threshold = n ? n : SIZE_MAX;
				return;
			}
		} else if (!strcmp(key, "quiet")) {
			if (set_quiet(value))
				return;
		} else if (!strcmp(key, "report")) {
			if (strlen(value) < sizeof(report_path)) {
				strcpy(report_path, value);
				return;
			}
		} else if (cow_option_set(key, value) == 0) {
			asked |= !strcmp(key, "backing") || !strcmp(key, "share");
			return;
		}
	}
	if (!unknown[0] && *key)
		memcpy(unknown, key, strnlen(key, sizeof(unknown) - 1));
}

static void
read_all(const char *env)
{
	char buf[1024], *at = buf, *comma;

	if (!env || strlen(env) >= sizeof(buf))
		return;
	strcpy(buf, env);
	for (; at; at = comma) {
		comma = strchr(at, ',');
		if (comma)
			*comma++ = '\0';
		one(at);
	}
}

void
preload_options_read(void)
{
	preload_threshold = THRESHOLD;
	read_all(secure_getenv("COWSHED_OPTIONS"));
	if (!asked && cow__memfds_are_slow())
		preload_threshold = SIZE_MAX;
}
