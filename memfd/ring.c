/* SPDX-License-Identifier: MIT */
/*
 * A ring of I/O: see the header.
 *
 * Pieces are put in one by one, in order, up to DEPTH at a time. What the page
 * cache has is copied at once, in the call that puts the piece in. The memory
 * that was made ready for it is then still in the processor's cache. What the
 * page cache lacks waits in the kernel, and the next pieces go on beside it.
 *
 *      |== done ==|= in flight =|= done =|= in flight =|- - not yet - - - -|
 *      0          ^ done                               ^ next          bytes
 *
 * A piece that came short is put in again for its rest. The first failure, or the
 * end of the file, stops what was not put in yet. The transfer always waits for
 * what is in flight: nobody may get the memory while the kernel still writes to
 * it. If waiting itself is refused, the transfer looks for the completions in
 * memory.
 *
 * Registered memory spares the kernel the look-up of pages for each piece. That
 * counts where the kernel reaches the memory directly (O_DIRECT). But registering
 * takes every page *for writing*, which would copy all pages of a private view.
 * So only memory that is read into is registered, never what is being saved.
 *
 * A ring in the process's descriptor table means that its memory must not be
 * frozen (memfd/process.h). A ring that saves is an exception: what it reads was
 * frozen before, or need not be of one moment. A child closes the rings that it
 * inherits.
 */
#include "memfd/ring.h"
#include "memfd/descriptor.h"
#include "memfd/sys.h"

#include <linux/io_uring.h>
#include <string.h>
#include <sys/uio.h>

enum { DEPTH = 64, RINGS = 16, BUFFERS = 32 };
#define PIECE ((size_t)1 << 20)
#define BUFFER ((size_t)1 << 30) /* the most that one registration takes */

struct ring {
	struct cow__descriptor file;
	unsigned *sq_tail, *sq_mask, *sq_array;
	unsigned *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	struct {
		void *at;
		size_t bytes;
	} maps[3];
	bool registered;
};

struct piece {
	size_t from, to; /* what of it is not done yet */
	bool busy, slowly;
};

struct cow__ring_use {
	int fd; /* 0: free; else one more than the number */
	struct cow__descriptor ring, file; /* file: where it is its own */
	bool reads_memory;
};

static struct cow__ring_use uses[RINGS];

bool
cow__ring_harmless(int fd)
{
	for (unsigned i = 0; i < RINGS; i++) {
		int ring = __atomic_load_n(&uses[i].fd, __ATOMIC_ACQUIRE);

		if (ring > 1 && uses[i].reads_memory &&
		    (ring == fd + 1 || uses[i].file.fd == fd))
			return true;
	}
	return false;
}

void
cow__rings_child(void)
{
	for (unsigned i = 0; i < RINGS; i++) {
		if (uses[i].fd > 1) {
			cow__descriptor_close(&uses[i].ring);
			cow__descriptor_close(&uses[i].file);
		}
		uses[i].fd = 0;
	}
}

/* Noted before there is a ring, so that a child that has the ring knows of it. 1:
 * the number is about to be known. */
static struct cow__ring_use *
use_begin(const struct cow__transfer *t)
{
	for (unsigned i = 0; i < RINGS; i++) {
		int none = 0;

		if (!__atomic_compare_exchange_n(&uses[i].fd, &none, 1, false,
		                                 __ATOMIC_ACQUIRE,
		                                 __ATOMIC_RELAXED))
			continue;
		uses[i].reads_memory = t->write;
		uses[i].file = t->own_file ? cow__descriptor_of(t->fd)
		                           : COW__NO_DESCRIPTOR;
		return &uses[i];
	}
	return NULL;
}

static int
map_ring(struct ring *r, unsigned n, size_t bytes, uint64_t what)
{
	long at = sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                   MAP_SHARED | MAP_POPULATE, r->file.fd, what);

	if (at < 0 && at > -4096)
		return (int)at;
	r->maps[n].at = (void *)at;
	r->maps[n].bytes = bytes;
	(void)sys_madvise((void *)at, bytes, MADV_DONTFORK);
	return 0;
}

static void
ring_close(struct ring *r, struct cow__ring_use *use)
{
	if (r->registered)
		(void)SYS4(SYS_io_uring_register, r->file.fd,
		           IORING_UNREGISTER_BUFFERS, NULL, 0);
	for (unsigned i = 0; i < 3; i++)
		if (r->maps[i].at)
			(void)sys_munmap(r->maps[i].at, r->maps[i].bytes);
	__atomic_store_n(&use->fd, 1, __ATOMIC_RELEASE);
	cow__descriptor_close(&r->file);
	__atomic_store_n(&use->fd, 0, __ATOMIC_RELEASE);
}

static int
ring_open(struct ring *r, struct cow__ring_use *use)
{
	struct io_uring_params p = { .flags = IORING_SETUP_CLAMP };
	long fd = SYS3(SYS_io_uring_setup, DEPTH, &p, 0);
	char *sq, *cq;
	int e;

	*r = (struct ring){ .file = COW__NO_DESCRIPTOR };
	if (fd < 0) {
		__atomic_store_n(&use->fd, 0, __ATOMIC_RELEASE);
		return -ENOSYS;
	}
	r->file = cow__descriptor_adopt((int)fd);
	use->ring = r->file;
	__atomic_store_n(&use->fd, r->file.fd + 1, __ATOMIC_RELEASE);
	e = map_ring(r, 0, p.sq_off.array + p.sq_entries * sizeof(unsigned),
	             IORING_OFF_SQ_RING);
	if (e == 0)
		e = map_ring(r, 1, p.cq_off.cqes + p.cq_entries * sizeof(*r->cqes),
		             IORING_OFF_CQ_RING);
	if (e == 0)
		e = map_ring(r, 2, p.sq_entries * sizeof(*r->sqes), IORING_OFF_SQES);
	if (e < 0 || p.sq_entries < DEPTH) {
		ring_close(r, use);
		return -ENOSYS;
	}
	sq = r->maps[0].at;
	cq = r->maps[1].at;
	r->sq_tail = (unsigned *)(sq + p.sq_off.tail);
	r->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
	r->sq_array = (unsigned *)(sq + p.sq_off.array);
	r->cq_head = (unsigned *)(cq + p.cq_off.head);
	r->cq_tail = (unsigned *)(cq + p.cq_off.tail);
	r->cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	r->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
	r->sqes = r->maps[2].at;
	return 0;
}

/* May fail: limits on locked memory forbid it to most users. */
static void
register_memory(struct ring *r, const struct cow__transfer *t)
{
	struct iovec buffers[BUFFERS];
	unsigned n = 0;

	if (t->write || !t->direct || t->bytes > BUFFERS * BUFFER)
		return;
	for (size_t at = 0; at < t->bytes; at += BUFFER, n++)
		buffers[n] = (struct iovec){
			.iov_base = t->data + at,
			.iov_len = t->bytes - at < BUFFER ? t->bytes - at
			                                  : BUFFER,
		};
	r->registered = SYS4(SYS_io_uring_register, r->file.fd,
	                     IORING_REGISTER_BUFFERS, buffers, n) == 0;
}

/* Puts in one piece, or its rest. 1; 0 or -errno: it was not taken. */
static long
submit_piece(struct ring *r, const struct cow__transfer *t, const struct piece *p,
             unsigned slot)
{
	unsigned tail = *r->sq_tail, at = tail & *r->sq_mask;
	struct io_uring_sqe *e = &r->sqes[at];
	long n;

	*e = (struct io_uring_sqe){
		.opcode = r->registered ? IORING_OP_READ_FIXED
		          : t->write    ? IORING_OP_WRITE
		                        : IORING_OP_READ,
		.flags = p->slowly ? IOSQE_ASYNC : 0,
		.fd = t->fd,
		.off = t->offset + p->from,
		.addr = (uintptr_t)(t->data + p->from),
		.len = (uint32_t)(p->to - p->from),
		.user_data = slot,
		.buf_index = (uint16_t)(p->from / BUFFER),
	};
	r->sq_array[at] = at;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	do
		n = SYS6(SYS_io_uring_enter, r->file.fd, 1, 0, 0, NULL, 0);
	while (n == -EINTR);
	if (n != 1) /* the kernel takes nothing without being called */
		__atomic_store_n(r->sq_tail, tail, __ATOMIC_RELEASE);
	return n;
}

struct state {
	struct piece pieces[DEPTH];
	unsigned busy;
	size_t next, stop; /* nothing from `stop` on matters any more */
	long failure;      /* of what is at `stop`: 0, 1 (end) or -errno */
};

static void
stop_at(struct state *s, size_t at, long failure)
{
	if (at < s->stop) {
		s->stop = at;
		s->failure = failure;
	}
}

static void
issue(struct ring *r, const struct cow__transfer *t, struct state *s,
      unsigned slot)
{
	struct piece *p = &s->pieces[slot];
	long n = submit_piece(r, t, p, slot);

	if (n == 1) {
		s->busy += !p->busy;
		p->busy = true;
		return;
	}
	s->busy -= p->busy;
	p->busy = false;
	stop_at(s, p->from, n < 0 ? n : -EAGAIN);
}

static void
completed(struct ring *r, const struct cow__transfer *t, struct state *s,
          const struct io_uring_cqe *c)
{
	struct piece *p = &s->pieces[c->user_data];
	int n = c->res;

	if (n > 0)
		p->from += (size_t)n;
	if (n <= 0 && n != -EINTR && n != -EAGAIN)
		stop_at(s, p->from, n < 0 ? n : t->write ? -EIO : 1);
	/* A piece that would have to wait goes to a thread of the kernel's. */
	p->slowly = n == -EAGAIN;
	if (p->from < p->to && p->from < s->stop) {
		issue(r, t, s, (unsigned)c->user_data);
	} else {
		p->busy = false;
		s->busy--;
	}
}

/* Takes the completions that are there, and waits for one if there is none. */
static void
reap(struct ring *r, const struct cow__transfer *t, struct state *s, bool wait)
{
	unsigned head = *r->cq_head;

	while (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
		if (!wait)
			return;
		if (SYS6(SYS_io_uring_enter, r->file.fd, 0, 1,
		         IORING_ENTER_GETEVENTS, NULL, 0) < 0)
			(void)sys_sched_yield();
	}
	while (head != __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
		struct io_uring_cqe c = r->cqes[head & *r->cq_mask];

		__atomic_store_n(r->cq_head, ++head, __ATOMIC_RELEASE);
		completed(r, t, s, &c);
	}
}

int
cow__ring_transfer(const struct cow__transfer *t, size_t *ret_done)
{
	struct cow__ring_use *use = use_begin(t);
	struct state s = { .stop = t->bytes };
	struct ring r;

	*ret_done = 0;
	if (!use || ring_open(&r, use) < 0)
		return -ENOSYS;
	register_memory(&r, t);
	while (s.next < s.stop) {
		unsigned slot = 0;

		while (slot < DEPTH && s.pieces[slot].busy)
			slot++;
		if (slot == DEPTH) {
			reap(&r, t, &s, true);
			continue;
		}
		s.pieces[slot] = (struct piece){
			.from = s.next,
			.to = t->bytes - s.next < PIECE ? t->bytes
			                                : s.next + PIECE,
		};
		s.next = s.pieces[slot].to;
		if (t->ready)
			t->ready(t->arg, s.pieces[slot].from,
			         s.pieces[slot].to - s.pieces[slot].from);
		issue(&r, t, &s, slot);
		reap(&r, t, &s, false);
	}
	while (s.busy)
		reap(&r, t, &s, true);
	ring_close(&r, use);
	*ret_done = s.stop;
	return (int)s.failure;
}
