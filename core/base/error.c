/* SPDX-License-Identifier: MIT */
/*
 * Error messages: see the header.
 *
 * Each thread has one buffer. It is filled without stdio: an allocator that fails
 * must not allocate to say so.
 */
#include "core/base/error.h"
#include "core/base/base.h"
#include "cowshed.h"

#define SENTENCE 400

static _Thread_local char sentence[SENTENCE];
static _Thread_local bool stands;

static size_t
append_text(size_t at, const char *s)
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
	return append_text(at, digits + i);
}

COW_EXPORT const char *
cow_last_error(void)
{
	return sentence;
}

COW_EXPORT int
cow__error(int error, const char *s)
{
	stands = false;
	append_text(0, s);
	return error;
}

COW_EXPORT int
cow__error_number(int error, const char *s, uint64_t number)
{
	size_t at = 0;

	stands = false;
	sentence[0] = '\0';
	for (; *s; s++) {
		char one[2] = { *s, '\0' };

		at = *s == '#' ? append_number(at, number) : append_text(at, one);
	}
	return error;
}

COW_EXPORT void
cow__error_begin(void)
{
	stands = false;
	sentence[0] = '\0';
}

COW_EXPORT void
cow__error_stands(void)
{
	stands = sentence[0] != '\0';
}

COW_EXPORT void
cow__error_add(const char *piece)
{
	append_text(strlen(sentence), piece);
}

COW_EXPORT void
cow__error_add_number(int64_t number)
{
	if (number < 0)
		cow__error_add("-");
	append_number(strlen(sentence), number < 0 ? -(uint64_t)number
	                                           : (uint64_t)number);
}

struct known {
	int error;
	const char *why;
};

static int
append_why(size_t at, int error, const struct known *known, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (known[i].error == -error) {
			append_text(at, known[i].why);
			return error;
		}
	at = append_text(at, ": error ");
	append_number(at, (uint64_t)-error);
	return error;
}

COW_EXPORT int
cow__error_from(int error, const char *what)
{
	static const struct known known[] = {
		{ ENOMEM, ": not enough memory or address space" },
		{ EMFILE, ": too many open files in this process" },
		{ ENFILE, ": too many open files in the system" },
		{ EFBIG, ": the file size limit (ulimit -f) forbids it" },
		{ EBADF, ": the program closed a descriptor of the library" },
		{ EPERM, ": the system forbids it" },
		{ EACCES, ": a filter of system calls or a security module forbids it" },
		{ ENOSYS, ": this kernel does not support it" },
		{ EOPNOTSUPP, ": this kernel or this memory does not support it" },
		{ EAGAIN, ": it can't be done at this moment; try again" },
		{ EBUSY, ": another process or thread uses it at this moment; try again" },
		{ EINTR, ": a signal interrupted it; try again" },
		{ EINVAL, ": the kernel refuses it (EINVAL)" },
		{ ENOENT, ": it does not exist, or /proc is missing" },
		{ ESRCH, ": there is no such process" },
		{ ENODEV, ": there is no such device, or its memory can't be mapped" },
		{ ENXIO, ": there is no such device" },
		{ EEXIST, ": it exists already" },
		{ EIO, ": input/output error" },
		{ ENOSPC, ": no space is left" },
		{ EDQUOT, ": the quota is used up" },
		{ EPIPE, ": the other end is closed" },
		{ ECONNRESET, ": the other end is closed" },
		{ ECONNREFUSED, ": nobody listens there" },
		{ ENOTCONN, ": the socket is not connected" },
		{ EMSGSIZE, ": the message is too long for the socket" },
		{ ENOBUFS, ": too many messages are on their way" },
		{ ETOOMANYREFS, ": too many descriptors are on their way" },
		{ EUSERS, ": all slots of the group are taken" },
		{ EBADMSG, ": the message or descriptor is malformed" },
		{ ESTALE, ": what it refers to is gone" },
		{ ETIMEDOUT, ": it took too long" },
		{ E2BIG, ": it is too large" },
		{ EOVERFLOW, ": it is too large" },
		{ EXDEV, ": it lies elsewhere" },
		{ EDEADLK, ": it would wait for itself" },
		{ EFAULT, ": the program unmapped or protected a part of the "
		          "memory, which can't be read" },
	};

	stands = false;
	return append_why(append_text(0, what), error, known,
	                  sizeof(known) / sizeof(known[0]));
}

COW_EXPORT int
cow__error_passed(int error, const char *what)
{
	return stands ? error : cow__error_from(error, what);
}

int
cow__error_about(int error, const char *what, const char *name)
{
	static const struct known known[] = {
		{ ENOENT, ": it does not exist" },
		{ EEXIST, ": it exists already" },
		{ EACCES, ": permission denied" },
		{ EPERM, ": the system forbids it" },
		{ ENOMEM, ": not enough memory or address space" },
		{ ENOSPC, ": no space is left there" },
		{ EDQUOT, ": the quota is used up" },
		{ EFBIG, ": larger than the file size limit (ulimit -f), or than "
		         "the file system allows" },
		{ EMFILE, ": too many open files in this process" },
		{ ENFILE, ": too many open files in the system" },
		{ EBADF, ": the descriptor is not open, or not for this access" },
		{ EISDIR, ": it is a directory" },
		{ ENOTDIR, ": a part of the path is not a directory" },
		{ ENODEV, ": such a file can't be mapped" },
		{ ENAMETOOLONG, ": the name is too long" },
		{ ELOOP, ": it is a symbolic link" },
		{ EROFS, ": the file system is read-only" },
		{ EIO, ": input/output error" },
		{ EPIPE, ": its other end is closed" },
		{ EFAULT, ": the file behind the memory was made shorter" },
		{ ENODATA, ": the file is too short" },
		{ ESTALE, ": it was made shorter meanwhile" },
		{ EINVAL, ": the kernel refuses it (EINVAL)" },
	};
	size_t n = strlen(name), most = 120, at = append_text(0, what);

	stands = false;
	at = append_text(at, " ");
	if (n > most)
		at = append_text(at, "...");
	at = append_text(at, n > most ? name + n - most : name);
	return append_why(at, error, known, sizeof(known) / sizeof(known[0]));
}
