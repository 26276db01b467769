/* SPDX-License-Identifier: MIT */
/*
 * Waits for many sockets
 *
 * With io_uring one system call arms the polls again and waits for the next
 * events: one call a round, for any number of clients. Polls are one-shot. Arming
 * one checks the state of the socket first, so no event is missed. With multishot
 * polls the broker would have to read each socket until it is empty, which costs
 * a call for each request. An entry in the ring costs less.
 *
 * Many containers deny io_uring. Then epoll does the same; it is level-triggered
 * for the same reason.
 */
#include "cli/broker.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
	int fd;
	unsigned *sq_tail, *sq_mask, *cq_head, *cq_tail, *cq_mask;
	unsigned *sq_array, entries, queued;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring = { .fd = -1 };

static int epoll = -1;
static uint32_t *watched; /* epoll: events by id; 0: not added */

static int enter(unsigned submit, unsigned wait, int timeout_ms)
{
	struct __kernel_timespec time = {
		.tv_sec = timeout_ms / 1000,
		.tv_nsec = (long long)(timeout_ms % 1000) * 1000000,
	};
	struct io_uring_getevents_arg arg = {
		.sigmask_sz = _NSIG / 8,
		.ts = timeout_ms < 0 ? 0 : (uint64_t)(uintptr_t)&time,
	};
	long r = syscall(SYS_io_uring_enter, ring.fd, submit, wait,
	                 IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg,
	                 sizeof(arg));

	return r < 0 ? -errno : (int)r;
}

static void *at(void *base, uint32_t offset)
{
	return (char *)base + offset;
}

static int ring_setup(struct io_uring_params *p, uint32_t ids, uint32_t more)
{
	*p = (struct io_uring_params){
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | more,
		.cq_entries = ids + 64, /* one for each id: never too full */
	};
	return (int)syscall(SYS_io_uring_setup, 256, p);
}

static bool suffices(const struct io_uring_params *p, uint32_t ids)
{
	const uint32_t needed = IORING_FEAT_EXT_ARG | IORING_FEAT_SINGLE_MMAP |
	                        IORING_FEAT_NODROP;

	return p->cq_entries >= ids && (p->features & needed) == needed;
}

static int ring_map(const struct io_uring_params *p)
{
	size_t bytes = p->sq_off.array + p->sq_entries * sizeof(unsigned);
	size_t cqes = p->cq_off.cqes +
	              p->cq_entries * sizeof(struct io_uring_cqe);
	void *rings;

	rings = mmap(NULL, bytes < cqes ? cqes : bytes, PROT_READ | PROT_WRITE,
	             MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	ring.sqes = mmap(NULL, p->sq_entries * sizeof(struct io_uring_sqe),
	                 PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
	                 IORING_OFF_SQES);
	if (rings == MAP_FAILED || ring.sqes == MAP_FAILED)
		return -errno;
	ring.entries = p->sq_entries;
	ring.sq_tail = at(rings, p->sq_off.tail);
	ring.sq_mask = at(rings, p->sq_off.ring_mask);
	ring.sq_array = at(rings, p->sq_off.array);
	ring.cq_head = at(rings, p->cq_off.head);
	ring.cq_tail = at(rings, p->cq_off.tail);
	ring.cq_mask = at(rings, p->cq_off.ring_mask);
	ring.cqes = at(rings, p->cq_off.cqes);
	return 0;
}

static int ring_open(uint32_t ids)
{
	struct io_uring_params p;
	int r;

	/* For one thread: the kernel does the work of wake-ups when this thread
	 * waits, all of it together, and sends it no interrupts. Kernels before
	 * 6.1 do not know these flags. */
	ring.fd = ring_setup(&p, ids,
	                     IORING_SETUP_SINGLE_ISSUER |
	                     IORING_SETUP_DEFER_TASKRUN);
	if (ring.fd < 0 && errno == EINVAL)
		ring.fd = ring_setup(&p, ids, 0);
	if (ring.fd < 0)
		return -errno;
	r = suffices(&p, ids) ? ring_map(&p) : -ENOSYS;
	if (r < 0)
		close(ring.fd);
	return r;
}

static int submit(unsigned wait, int timeout_ms)
{
	int r = enter(ring.queued, wait, timeout_ms);

	if (r >= 0)
		ring.queued -= (unsigned)r;
	else if (r == -ETIME || r == -EINTR)
		ring.queued = 0; /* the kernel submits before it waits */
	return r;
}

static int ring_arm(uint32_t id, int fd, uint32_t events)
{
	unsigned tail = *ring.sq_tail, i = tail & *ring.sq_mask;
	int r;

	if (ring.queued == ring.entries) {
		r = submit(0, -1);
		if (r < 0)
			return r;
		if (ring.queued == ring.entries)
			return -EBUSY;
	}
	ring.sqes[i] = (struct io_uring_sqe){
		.opcode = IORING_OP_POLL_ADD,
		.fd = fd,
		.poll32_events = events,
		.user_data = id,
	};
	ring.sq_array[i] = i;
	/* Pairs with the kernel's load of the tail. */
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	ring.queued++;
	return 0;
}

static int ring_take(struct broker_event *events, int max)
{
	unsigned head = *ring.cq_head;
	int n = 0;

	while (n < max &&
	       head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
		const struct io_uring_cqe *c = &ring.cqes[head & *ring.cq_mask];

		/* A socket that can't be polled is dead: reading it fails. */
		events[n++] = (struct broker_event){
			.id = (uint32_t)c->user_data,
			.events = c->res < 0 ? POLLERR : (uint32_t)c->res,
		};
		head++;
	}
	__atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
	return n;
}

static int ring_wait(struct broker_event *events, int max, int timeout_ms)
{
	int r = submit(1, timeout_ms);

	if (r < 0 && r != -ETIME && r != -EINTR && r != -EBUSY && r != -EAGAIN)
		return r;
	r = ring_take(events, max);
	return r;
}

int broker_loop_open(uint32_t ids, bool epoll_only)
{
	if (!epoll_only && ring_open(ids) == 0)
		return 0;
	ring.fd = -1;
	watched = calloc(ids, sizeof(*watched));
	epoll = epoll_create1(EPOLL_CLOEXEC);
	return watched == NULL ? -ENOMEM : epoll < 0 ? -errno : 0;
}

const char *broker_loop_name(void)
{
	return ring.fd >= 0 ? "io_uring" : "epoll";
}

int broker_loop_arm(uint32_t id, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data = { .u32 = id } };

	if (ring.fd >= 0)
		return ring_arm(id, fd, events);
	if (watched[id] == events)
		return 0;
	if (epoll_ctl(epoll, watched[id] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
	              &e) < 0)
		return -errno;
	watched[id] = events;
	return 0;
}

void broker_loop_forget(uint32_t id, int fd)
{
	if (watched == NULL)
		return;
	/* Closing `fd` does not remove it while a dying child has it, too
	 * (broker_bury()). */
	(void)epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
	watched[id] = 0;
}

int broker_loop_wait(struct broker_event *events, int max, int timeout_ms)
{
	struct epoll_event e[64];
	int n;

	if (ring.fd >= 0)
		return ring_wait(events, max, timeout_ms);
	n = epoll_wait(epoll, e, max < 64 ? max : 64, timeout_ms);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++)
		events[i] = (struct broker_event){ e[i].data.u32, e[i].events };
	return n;
}
