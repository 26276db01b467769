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

static bool
is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Leaves out the blanks at both ends of [*s, *s + *n). */
static void
trim(const char **s, size_t *n)
{
	for (; *n && is_blank(**s); ++*s)
		--*n;
	while (*n && is_blank((*s)[*n - 1]))
		--*n;
}

static int
split_pair(struct cow__pair *p)
{
	const char *end = p->start + p->bytes, *equals = p->start, *value;
	size_t key, n;

	p->key[0] = p->value[0] = '\0';
	while (equals < end && *equals != '=')
		equals++;
	if (equals == end || equals == p->start)
		return -EINVAL;
	value = equals + 1;
	n = (size_t)(end - value);
	trim(&value, &n);
	for (key = (size_t)(equals - p->start); is_blank(p->start[key - 1]);)
		key--;
	if (key >= sizeof(p->key))
		return -ENOENT;
	if (n >= sizeof(p->value))
		return -EINVAL;
	memcpy(p->key, p->start, key);
	p->key[key] = '\0';
	memcpy(p->value, value, n);
	p->value[n] = '\0';
	return 1;
}

COW_EXPORT int
cow__option_next(const char **list, struct cow__pair *ret)
{
	const char *at = *list, *end;

	for (; *at; at = *end ? end + 1 : end) {
		for (end = at; *end && *end != ',';)
			end++;
		ret->start = at;
		ret->bytes = (size_t)(end - at);
		trim(&ret->start, &ret->bytes);
		if (ret->bytes) {
			*list = *end ? end + 1 : end;
			return split_pair(ret);
		}
	}
	*list = at;
	return 0;
}
