/* SPDX-License-Identifier: MIT */
/*
 * String functions of our own, hidden as those of bytes.c, which has the reason. The texts are
 * short: names of options, paths, lines of /proc.
 */
#undef _FORTIFY_SOURCE

#include <stddef.h>

#if !defined(COW_SANITIZED)

#define OURS __attribute__((visibility("hidden"), used))

void *memcpy(void *to, const void *from, size_t n);
OURS size_t strlen(const char *s);
OURS size_t strnlen(const char *s, size_t most);
OURS size_t strcspn(const char *s, const char *stops);
OURS char *strchr(const char *s, int c);
OURS char *strrchr(const char *s, int c);
OURS char *strstr(const char *s, const char *part);
OURS int strcmp(const char *a, const char *b);
OURS int strncmp(const char *a, const char *b, size_t most);
OURS char *strcpy(char *to, const char *from);
OURS char *strcat(char *to, const char *from);
OURS char *strncat(char *to, const char *from, size_t most);

OURS size_t
strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

OURS size_t
strnlen(const char *s, size_t most)
{
	size_t n = 0;

	while (n < most && s[n])
		n++;
	return n;
}

OURS char *
strchr(const char *s, int c)
{
	for (; *s != (char)c; s++)
		if (!*s)
			return NULL;
	return (char *)s;
}

OURS char *
strrchr(const char *s, int c)
{
	const char *found = NULL;

	do
		if (*s == (char)c)
			found = s;
	while (*s++);
	return (char *)found;
}

OURS size_t
strcspn(const char *s, const char *stops)
{
	size_t n = 0;

	while (s[n] && !strchr(stops, s[n]))
		n++;
	return n;
}

OURS int
strncmp(const char *a, const char *b, size_t most)
{
	for (; most && *a == *b && *a; most--) {
		a++;
		b++;
	}
	return most ? (unsigned char)*a - (unsigned char)*b : 0;
}

OURS int
strcmp(const char *a, const char *b)
{
	return strncmp(a, b, (size_t)-1);
}

OURS char *
strstr(const char *s, const char *part)
{
	size_t n = strlen(part);

	for (; strncmp(s, part, n) != 0; s++)
		if (!*s)
			return NULL;
	return (char *)s;
}

OURS char *
strcpy(char *to, const char *from)
{
	return memcpy(to, from, strlen(from) + 1);
}

OURS char *
strncat(char *to, const char *from, size_t most)
{
	size_t n = strnlen(from, most), at = strlen(to);

	memcpy(to + at, from, n);
	to[at + n] = '\0';
	return to;
}

OURS char *
strcat(char *to, const char *from)
{
	return strncat(to, from, (size_t)-1);
}

/* _FORTIFY_SOURCE calls these where it knows the room. */
OURS char *__strcpy_chk(char *to, const char *from, size_t room);
OURS char *__strcat_chk(char *to, const char *from, size_t room);
OURS char *__strncat_chk(char *to, const char *from, size_t most, size_t room);

static void
must_fit(size_t n, size_t room)
{
	if (n >= room)
		__builtin_trap();
}

OURS char *
__strcpy_chk(char *to, const char *from, size_t room)
{
	must_fit(strlen(from), room);
	return strcpy(to, from);
}

OURS char *
__strncat_chk(char *to, const char *from, size_t most, size_t room)
{
	must_fit(strlen(to) + strnlen(from, most), room);
	return strncat(to, from, most);
}

OURS char *
__strcat_chk(char *to, const char *from, size_t room)
{
	return __strncat_chk(to, from, (size_t)-1, room);
}

#else
extern char cow__text_none;
#endif
