/* SPDX-License-Identifier: MIT */
/*
 * Options: parsing of their values
 *
 * The environment is read elsewhere, by the shim and by the command.
 */
#include "core/base/option.h"
#include "core/base/base.h"

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

bool
cow__parse_flag(const char *s, bool *ret)
{
	bool on = !strcmp(s, "1") || !strcmp(s, "yes") || !strcmp(s, "on");

	if (!on && strcmp(s, "0") && strcmp(s, "no") && strcmp(s, "off"))
		return false;
	*ret = on;
	return true;
}
