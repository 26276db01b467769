/* SPDX-License-Identifier: MIT */
/*
 * Settings: see the header.
 */
#include "core/base/settings.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/stats.h"

/* The shared library has another one, which the build makes: mk/libraries.mk. */
__attribute__((weak)) const char cow__commit[48] = "";

static struct cow_settings settings; /* the lists; the rest is added when it is read */

/* Adds an element to a list with commas between. What does not fit becomes "...". */
static void
add_element(char *list, size_t room, const char *text, size_t bytes)
{
	size_t used = strlen(list);

	if (used + bytes + 2 + sizeof(",...") > room) {
		if (used && list[used - 1] != '.')
			strcpy(list + used, ",...");
		return;
	}
	if (used)
		list[used++] = ',';
	memcpy(list + used, text, bytes);
	list[used + bytes] = '\0';
}

/* Takes the element of a key out of a list. */
static void
take_out(char *list, const char *key)
{
	size_t n = strlen(key);

	for (char *at = list, *next; *at; at = next) {
		next = at + strcspn(at, ",");
		next += *next == ',';
		if (strncmp(at, key, n) || at[n] != '=')
			continue;
		memmove(at, next, strlen(next) + 1);
		n = strlen(list);
		if (n && list[n - 1] == ',')
			list[n - 1] = '\0';
		return;
	}
}

static void
changed(void)
{
	struct cow_settings *page = cow__stats_settings();

	if (page)
		cow__settings_publish(page);
}

COW_EXPORT void
cow__settings_note(const char *key, const char *value)
{
	char pair[300];
	size_t k = strlen(key), v = strlen(value);

	if (k + v + 1 >= sizeof(pair))
		return; /* no option is that long */
	memcpy(pair, key, k);
	pair[k] = '=';
	memcpy(pair + k + 1, value, v);
	take_out(settings.options, key);
	add_element(settings.options, sizeof(settings.options), pair, k + 1 + v);
	changed();
}

COW_EXPORT void
cow__settings_refused(const char *text, size_t bytes)
{
	add_element(settings.refused, sizeof(settings.refused), text, cow__min(bytes, 200));
	changed();
}

void
cow__settings_publish(struct cow_settings *page)
{
	memcpy(page->options, settings.options, sizeof(page->options));
	memcpy(page->refused, settings.refused, sizeof(page->refused));
	strcpy(page->version, cow_version());
	memcpy(page->commit, cow__commit, cow__min(strlen(cow__commit), sizeof(page->commit) - 1));
}

COW_EXPORT int
cow_settings_read(pid_t pid, struct cow_settings *ret)
{
	struct cow_settings now = { .size = 0 };
	size_t size;
	int r = 0;

	if (!ret || ret->size < sizeof(ret->size))
		return cow__error(-EINVAL, "cow_settings_read: size is not set");
	if (pid)
		r = cow__stats_read_settings(pid, &now);
	else
		cow__settings_publish(&now);
	if (r < 0)
		return r;
	/* Another version, or a hostile process, may have filled them. */
	now.version[sizeof(now.version) - 1] = now.commit[sizeof(now.commit) - 1] = '\0';
	now.options[sizeof(now.options) - 1] = now.refused[sizeof(now.refused) - 1] = '\0';
	size = cow__min(ret->size, sizeof(now));
	now.size = size;
	memcpy(ret, &now, size);
	return 0;
}

COW_EXPORT const char *
cow_version(void)
{
#define STRING_(x) #x
#define STRING(x) STRING_(x)
	return STRING(COW_VERSION_MAJOR) "." STRING(
	        COW_VERSION_MINOR) "." STRING(COW_VERSION_PATCH);
}
