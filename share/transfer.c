/* SPDX-License-Identifier: MIT */
/*
 * Moving bytes between memory and a file: see the header.
 */
#include "share/transfer.h"
#include "core/base/base.h"
#include "cowshed-file.h"

#define DIRECT_BYTES ((size_t)4096) /* a multiple of every disk's blocks */
#define RING_LEAST (2 * MIB) /* making a ring costs some 100 us */
#define HUGE_BYTES (2 * MIB)

static int
plainly(const struct cow__transfer *t, size_t *done)
{
	bool stream = t->offset == COW__FILE_STREAM;

	while (*done < t->bytes) {
		size_t most = cow__min(t->bytes - *done,
		                       HUGE_BYTES - *done % HUGE_BYTES);
		uint64_t at = stream ? t->offset : t->offset + *done;
		long n;

		if (t->ready)
			t->ready(t->arg, *done, most);
		n = t->write
		            ? cow__file_write(t->fd, t->data + *done, most, at)
		            : cow__file_read(t->fd, t->data + *done, most, at);
		if (n == -EAGAIN)
			n = cow__file_wait(t->fd, t->write);
		else if (n == 0)
			return t->write ? -EIO : -ENODATA;
		if (n < 0)
			return (int)n;
		*done += (size_t)n;
	}
	return 0;
}

/* Not for writes through the page cache: there the pieces of a file wait for one another,
 * and a ring would only hand each to another thread. See docs/design/files.md. */
static void
ring(const struct cow__job *j, const struct cow__transfer *t, size_t *done)
{
	if (!(t->write && !t->direct) && !(j->flags & COW_IO_PLAIN) && t->bytes >= RING_LEAST &&
	    t->offset != COW__FILE_STREAM && j->facts.regular)
		(void)cow__ring_transfer(t, done);
}

/* The aligned bulk, by a second descriptor. What the kernel refuses is left to be done. */
static void
directly(const struct cow__job *j, size_t *done)
{
	struct cow__transfer t = j->t;
	struct cow__descriptor d;

	t.bytes = cow__round_down(t.bytes, DIRECT_BYTES);
	if (!t.bytes || !j->own || !j->facts.regular ||
	    t.offset % DIRECT_BYTES || (uintptr_t)t.data % DIRECT_BYTES ||
	    cow__file_open(j->name,
	                   COW__FILE_DIRECT | (t.write ? COW__FILE_WRITE
	                                               : COW__FILE_READ),
	                   0, &d) < 0)
		return;
	if (d.dev == j->file.dev && d.ino == j->file.ino) {
		t.fd = d.fd;
		t.own_file = true;
		t.direct = true;
		ring(j, &t, done);
		if (!*done)
			(void)plainly(&t, done);
		*done = cow__round_down(*done, DIRECT_BYTES);
	}
	cow__descriptor_close(&d);
}

int
cow__job_transfer(struct cow__job *j, size_t *done)
{
	*done = 0;
	j->t.fd = j->file.fd;
	if (j->flags & COW_IO_DIRECT)
		directly(j, done);
	if (*done == 0)
		ring(j, &j->t, done);
	return plainly(&j->t, done);
}
