/* SPDX-License-Identifier: MIT */
/*
 * A preloaded library that has its own clock, and its own functions for memory and texts
 *
 * Such libraries shift the time of a program (libfaketime), or count what is copied. This one
 * counts its calls in a variable of the thread. In a thread that libc does not know, finding
 * that variable crashes. Its clock stands still.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread volatile long calls;

static void count(void) { calls++; }

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	count();
	(void)clock;
	ret->tv_sec = 1577836800;
	ret->tv_nsec = 0;
	return 0;
}

pid_t getpid(void)
{
	count();
	return (pid_t)syscall(SYS_getpid);
}

void *memmove(void *to, const void *from, size_t n)
{
	const char *f = from;
	char *t = to;

	count();
	if (t < f)
		for (size_t i = 0; i < n; i++)
			t[i] = f[i];
	else
		while (n--)
			t[n] = f[n];
	return to;
}

void *memcpy(void *to, const void *from, size_t n) { return memmove(to, from, n); }

void *memset(void *to, int c, size_t n)
{
	char *t = to;

	count();
	while (n--)
		t[n] = (char)c;
	return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *p = a, *q = b;

	count();
	for (; n && *p == *q; n--)
		p++, q++;
	return n ? *p - *q : 0;
}

size_t strlen(const char *s)
{
	size_t n = 0;

	count();
	while (s[n])
		n++;
	return n;
}

int strncmp(const char *a, const char *b, size_t n)
{
	count();
	for (; n && *a == *b && *a; n--)
		a++, b++;
	return n ? (unsigned char)*a - (unsigned char)*b : 0;
}

int strcmp(const char *a, const char *b) { return strncmp(a, b, (size_t)-1); }
