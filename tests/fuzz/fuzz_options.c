/* SPDX-License-Identifier: MIT */
/*
 * Any text as COWSHED_OPTIONS
 *
 * It is read as the shim reads it, nothing beyond its end, and whatever was believed of
 * it, memory is to be had and holds what was written. Numbers of bytes are what a second
 * reading of them says.
 */
#include "core/base/option.h"
#include "preload/preload.h"
#include "tests/fuzz/must.h"

#include <cowshed.h>
#include <string.h>

enum { BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned fuzz_rounds;
const unsigned fuzz_rounds = 10000;

size_t preload_threshold;

/* Digits, one of KMGT in either case, "i" behind that, "B" behind that. */
static bool number(const char *s, unsigned __int128 *ret)
{
	static const char units[] = "KkMmGgTt";
	const unsigned __int128 limit = (unsigned __int128)1 << 64;
	unsigned __int128 n = 0;
	size_t digits = strspn(s, "0123456789");
	const char *unit;

	for (size_t i = 0; i < digits; i++)
		n = n >= limit ? n : n * 10 + (unsigned __int128)(s[i] - '0');
	if (digits == 0 || n >= limit)
		return false;
	s += digits;
	unit = *s ? strchr(units, *s) : NULL;
	if (unit) {
		n <<= 10 * ((unit - units) / 2 + 1);
		s += 1;
		s += *s == 'i';
		s += *s == 'B';
	}
	if (*s || n >= limit)
		return false;
	*ret = n;
	return true;
}

static void values(const char *text)
{
	for (const char *s = strchr(text, '='); s; s = strchr(s, '=')) {
		size_t bytes = strcspn(++s, ",");
		char *one = strndup(s, bytes);
		unsigned __int128 expected = 0;
		uint64_t n = 0;
		bool is;

		must(one != NULL);
		is = number(one, &expected);
		must(cow__parse_bytes(one, &n) == is && n == (uint64_t)expected);
		free(one);
	}
}

/* The engine, with what was set. */
static void use(void)
{
	struct cow_storage *s, *clone;
	void *data;

	must(cow_storage_new(BYTES, NULL, &s) == 0);
	must(cow_storage_data_mut(s, &data) == 0);
	memset(data, 7, BYTES);
	must(cow_storage_lazy_clone(s, &clone) == 0);
	must(cow_storage_data_mut(clone, &data) == 0);
	memset(data, 8, 4096);
	must(*(const char *)cow_storage_data(s) == 7);
	must(((const char *)cow_storage_data(clone))[BYTES - 1] == 7);
	cow_storage_unref(clone);
	cow_storage_unref(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char name[] = "COWSHED_OPTIONS=";
	static char *before;
	static unsigned runs;
	struct cow_settings told = { .size = sizeof(told) };
	char *now = malloc(sizeof(name) + size); /* exactly */

	must(now != NULL);
	memcpy(now, name, sizeof(name) - 1);
	memcpy(now + sizeof(name) - 1, data, size);
	now[sizeof(name) - 1 + size] = 0;
	must(putenv(now) == 0);
	free(before);
	before = now;
	values(now + sizeof(name) - 1);
	preload_options_read();
	must(preload_threshold > 0 && preload_option_mmap() > 0);
	must(strlen(preload_report_path()) < 256);
	must(cow_settings_read(0, &told) == 0);
	must(strlen(told.options) < sizeof(told.options));
	must(strlen(told.refused) < sizeof(told.refused));
	if (runs++ % 64 == 0)
		use();
	return 0;
}
