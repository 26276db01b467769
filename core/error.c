/* SPDX-License-Identifier: MIT */
/*
 * Sentences about failures: see the header.
 *
 * One buffer a thread, written without stdio: an allocator that fails must not
 * allocate to say so.
 */
#include "core/error.h"
#include "core/base.h"
#include "cowshed.h"

#define SENTENCE 160

static _Thread_local char sentence[SENTENCE];

static size_t
append(size_t at, const char *s)
{
	while (*s && at + 1 < SENTENCE)
		sentence[at++] = *s++;
	sentence[at] = '\0';
	return at;
}

static size_t
append_number(size_t at, uint64_t n)
{
	char digits[24];
	int i = 24;

	digits[--i] = '\0';
	do
		digits[--i] = (char)('0' + n % 10);
	while (n /= 10);
	return append(at, digits + i);
}

COW_EXPORT const char *
cow_last_error(void)
{
	return sentence;
}

int
cow__error(int error, const char *s)
{
	append(0, s);
	return error;
}

int
cow__error_number(int error, const char *s, uint64_t number)
{
	size_t at = 0;

	sentence[0] = '\0';
	for (; *s; s++) {
		char one[2] = { *s, '\0' };

		at = *s == '#' ? append_number(at, number) : append(at, one);
	}
	return error;
}

int
cow__error_from(int error, const char *what)
{
	static const struct {
		int error;
		const char *why;
	} known[] = {
		{ ENOMEM, ": not enough memory or address space" },
		{ EMFILE, ": too many open files in this process" },
		{ ENFILE, ": too many open files in the system" },
		{ EFBIG, ": the file size limit (ulimit -f) forbids it" },
		{ EBADF, ": the program closed a descriptor of the library" },
		{ EPERM, ": the system forbids it" },
		{ ENOSYS, ": the kernel does not know it" },
	};
	size_t at = append(0, what);

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].error == -error) {
			append(at, known[i].why);
			return error;
		}
	at = append(at, ": error ");
	append_number(at, (uint64_t)-error);
	return error;
}
