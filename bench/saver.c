/* SPDX-License-Identifier: MIT */
/*
 * Writing 1 GiB past the page cache: calls of pwrite(), as Python's savers do, or a ring
 *
 * Ours is pwrite(), the rival io_uring with registered memory. Both write pieces of the same
 * size: 16 MiB, as savers do (cowshed/_states/_direct.py), with two under way in the ring; and
 * 1 MiB, with eight. Both write a new file, opened with O_DIRECT, from warm memory in huge
 * pages, one thread each, in turns. "wall" is from the first call until all is written, and
 * the ring is made in that time. "cpu" is the processor time of the process and of the
 * kernel's threads that work for its ring. There is no bar: these figures tell why savers
 * have no ring.
 *
 * BENCH_FILE names the file (/tmp/cowshed-bench-saver); its directory should be on a disk.
 */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "bench/common.h"

static const struct way {
	const char *name;
	size_t piece;
	unsigned depth; /* of the ring */
} ways[] = { { "16MiB", 16 * MIB, 2 }, { "1MiB", MIB, 8 } };

enum { WAYS = COUNT_OF(ways) };

static const char *path = "/tmp/cowshed-bench-saver";
static char *memory;
static size_t bytes; /* a multiple of 16 MiB */

static int new_file(void)
{
	int fd;

	unlink(path);
	fd = open(path, O_CREAT | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600);
	if (fd < 0)
		die("%s: no file for O_DIRECT can be made there", path);
	return fd;
}

static void by_calls(const struct way *way, int fd)
{
	for (size_t at = 0; at < bytes; at += way->piece)
		if (pwrite(fd, memory + at, way->piece, (off_t)at) != (ssize_t)way->piece)
			die("pwrite");
}

struct ring {
	int fd;
	struct io_uring_params p;
	char *sq, *cq;
	struct io_uring_sqe *sqes;
};

static void *part(int fd, size_t size, unsigned long offset)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	if (p == MAP_FAILED)
		die("a ring's mapping");
	return p;
}

static bool ring_open(struct ring *r, unsigned depth)
{
	struct iovec all = { memory, bytes };

	memset(r, 0, sizeof *r);
	r->fd = (int)syscall(SYS_io_uring_setup, depth, &r->p);
	if (r->fd < 0)
		return false;
	r->sq = part(r->fd, r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned),
	             IORING_OFF_SQ_RING);
	r->cq = part(r->fd, r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe),
	             IORING_OFF_CQ_RING);
	r->sqes = part(r->fd, r->p.sq_entries * sizeof *r->sqes, IORING_OFF_SQES);
	return syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_BUFFERS, &all, 1) == 0;
}

static void ring_close(struct ring *r)
{
	munmap(r->sq, r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned));
	munmap(r->cq, r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe));
	munmap(r->sqes, r->p.sq_entries * sizeof *r->sqes);
	close(r->fd);
}

static unsigned *word(char *ring, unsigned offset)
{
	return (unsigned *)(void *)(ring + offset);
}

/* Puts one write into the ring; the kernel is told of it with the next wait. */
static void ring_put(struct ring *r, const struct way *way, int fd, size_t at)
{
	unsigned *tail = word(r->sq, r->p.sq_off.tail), i = *tail & (r->p.sq_entries - 1);

	r->sqes[i] = (struct io_uring_sqe){ .opcode = IORING_OP_WRITE_FIXED, .fd = fd,
		.addr = (uintptr_t)(memory + at), .len = (unsigned)way->piece, .off = at };
	word(r->sq, r->p.sq_off.array)[i] = i;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}

/* Takes what is done: the number of writes. */
static unsigned ring_take(struct ring *r, const struct way *way)
{
	unsigned *head = word(r->cq, r->p.cq_off.head), done = 0;
	unsigned tail = __atomic_load_n(word(r->cq, r->p.cq_off.tail), __ATOMIC_ACQUIRE);
	struct io_uring_cqe *cqes = (void *)(r->cq + r->p.cq_off.cqes);

	for (; *head + done != tail; done++)
		if (cqes[(*head + done) & (r->p.cq_entries - 1)].res != (int)way->piece)
			die("a write of the ring");
	__atomic_store_n(head, *head + done, __ATOMIC_RELEASE);
	return done;
}

static void by_ring(struct ring *r, const struct way *way, int fd)
{
	size_t at = 0, under_way = 0;

	while (at < bytes || under_way) {
		unsigned new = 0;

		for (; at < bytes && under_way < way->depth;
		     at += way->piece, under_way++, new++)
			ring_put(r, way, fd, at);
		if (syscall(SYS_io_uring_enter, r->fd, new, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
			die("io_uring_enter");
		under_way -= ring_take(r, way);
	}
}

/* One turn of a side. False: there is no ring. */
static bool turn(const struct way *way, bool ring, struct times *times)
{
	int fd = new_file();
	struct moment begin = moment_now();
	struct ring r;

	if (ring && !ring_open(&r, way->depth))
		return false;
	if (ring)
		by_ring(&r, way, fd);
	else
		by_calls(way, fd);
	series_add(&times->wall, ms_since(begin.wall));
	close(fd);
	if (ring)
		ring_close(&r); /* the kernel's threads of the ring count when they have ended */
	sleep_ms(20);
	series_add(&times->cpu, (cpu_ns() - begin.cpu) / 1e6);
	unlink(path);
	return true;
}

int main(void)
{
	static struct times calls[WAYS], rings[WAYS];
	int n = rounds(5);

	if (getenv("BENCH_FILE"))
		path = getenv("BENCH_FILE");
	bytes = sized(GIB) / (16 * MIB) * (16 * MIB);
	memory = memset(map_anonymous(bytes, true), 1, bytes);
	for (int i = 0; i < n * WAYS; i++) {
		int w = i % WAYS;

		turn(&ways[w], false, &calls[w]);
		if (!turn(&ways[w], true, &rings[w])) {
			printf("  saver: skipped (no io_uring, or its memory may not be locked)\n");
			unlink(path);
			return 0;
		}
	}
	for (int w = 0; w < WAYS; w++) {
		report_ratio(named("wall/%s", ways[w].name), "ms", &calls[w].wall, &rings[w].wall);
		report_ratio(named("cpu/%s", ways[w].name), "ms", &calls[w].cpu, &rings[w].cpu);
	}
	return 0;
}
