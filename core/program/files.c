/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of mapped files: see the header.
 *
 * The file is opened anew, and its descriptor is no duplicate: a duplicate would hold a
 * lock of flock() that the program gives back by closing its own. Closing any descriptor
 * of a file gives back this process's locks of fcntl() on it, which nothing can prevent. A
 * database could lose its bytes by that. So a file with a name is left alone: it can be
 * opened by that name.
 *
 *     slot: 0 (free) -> BUSY -> the start of the mapping -> BUSY -> 0, or another start
 *
 * The thread that makes a slot busy owns it. There is no lock: programs map memory in
 * signal handlers, too. So a call skips a slot that another one has at the moment, and
 * then a descriptor stays open for too long.
 */
#include "core/program/files.h"
#include "core/base/base.h"
#include "memfd/descriptor.h"
#include "memfd/page.h"
#include "memfd/park.h"

enum { FILES = 256, BUSY = 1 };

static struct slot {
	uintptr_t start;
	size_t bytes;
	struct cow__descriptor file;
} slots[FILES];

COW_EXPORT size_t cow__files_least, cow__files_kept;

static bool
take(struct slot *s, uintptr_t was)
{
	return __atomic_compare_exchange_n(&s->start, &was, BUSY, false,
	                                   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void
give(struct slot *s, uintptr_t start)
{
	__atomic_store_n(&s->start, start, __ATOMIC_RELEASE);
}

COW_EXPORT void
cow__files_keep(uintptr_t start, size_t bytes, int fd)
{
	struct cow__descriptor file;

	if (__atomic_load_n(&cow__park_sandboxed, __ATOMIC_RELAXED) ||
	    cow__descriptor_reopen(fd, &file) < 0)
		return;
	for (size_t i = 0; i < FILES; i++)
		if (take(&slots[i], 0)) {
			slots[i].bytes = cow__round_up(bytes, cow__page);
			slots[i].file = file;
			__atomic_add_fetch(&cow__files_kept, 1, __ATOMIC_RELAXED);
			give(&slots[i], start);
			return;
		}
	cow__descriptor_close(&file);
}

/* Takes [from, to) out of the range of a slot that this thread owns. Returns what the slot
 * is from then on. */
static uintptr_t
cut(struct slot *s, uintptr_t start, uintptr_t from, uintptr_t to)
{
	uintptr_t end = start + s->bytes;

	if (end <= from)
		return start;
	if (start < from) {
		if (to < end && cow__descriptor_ok(&s->file))
			cow__files_keep(to, end - to, s->file.fd);
		s->bytes = from - start;
		return start;
	}
	if (to < end) {
		s->bytes = end - to;
		return to;
	}
	cow__descriptor_close(&s->file);
	__atomic_sub_fetch(&cow__files_kept, 1, __ATOMIC_RELAXED);
	return 0;
}

COW_EXPORT void
cow__files_forget(uintptr_t from, size_t bytes)
{
	uintptr_t to = from + cow__round_up(bytes, cow__page);

	for (size_t i = 0; i < FILES; i++) {
		struct slot *s = &slots[i];
		uintptr_t start = __atomic_load_n(&s->start, __ATOMIC_RELAXED);

		if (start > BUSY && start < to && take(s, start))
			give(s, cut(s, start, from, to));
	}
}

COW_EXPORT void
cow__files_moved(uintptr_t from, size_t old_bytes, uintptr_t to, size_t bytes)
{
	for (size_t i = 0; i < FILES; i++) {
		struct slot *s = &slots[i];

		if (!take(s, from))
			continue;
		if (s->bytes == old_bytes) {
			s->bytes = bytes;
			give(s, to);
			return;
		}
		give(s, from);
	}
	/* A part that has moved away has no descriptor. */
	if (from != to)
		cow__files_forget(from, old_bytes);
}
