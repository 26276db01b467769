/* SPDX-License-Identifier: MIT */
/*
 * A block that was rewritten after a fork, and what becomes of its pages
 *
 * Each page that is written while a child holds the old one is copied: it is anonymous then.
 * An allocator may bring it home into a shared file later, when the child is gone and no
 * thread can write. The program looks at its own pages, and asks the library for its counters
 * if there is one. Without it nothing is brought home, and the program checks only its bytes.
 */
#ifndef COWSHED_TESTS_HEALING_H
#define COWSHED_TESTS_HEALING_H

#include "program.h"
#include "../../include/cowshed.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#define HUGE_PAGE (2 * MIB)

struct healing {
	unsigned char *block;
	size_t bytes;
	pid_t child;
	int gate[2];
};

static inline void rest(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* False: there is no library. */
static inline int stats(struct cow_stats *ret)
{
	static int (*get)(struct cow_stats *);
	void *p = dlsym(RTLD_DEFAULT, "cow_stats_get");

	if (!p)
		return 0;
	memcpy(&get, &p, sizeof(p));
	*ret = (struct cow_stats){ .size = sizeof(*ret) };
	check(get(ret) == 0);
	return 1;
}

static inline int library(void)
{
	struct cow_stats s;

	return stats(&s);
}

static inline uint64_t refused(enum cow_fallback reason)
{
	struct cow_stats s;

	return stats(&s) ? s.fallbacks[reason] : 0;
}

/* How many pages are anonymous: copied, and not yet at home. */
static inline size_t copied(const unsigned char *at, size_t bytes)
{
	/* A page that the kernel moves looks swapped out for a moment. */
	static const uint64_t there = 3ull << 62, of_a_file = 1ull << 61;
	uint64_t entries[512];
	size_t n = 0, left = bytes / PAGE, i, some;
	off_t from = (off_t)((uintptr_t)at / PAGE * sizeof(entries[0]));
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	check(fd >= 0);
	for (; left; left -= some, from += (off_t)(some * sizeof(entries[0]))) {
		some = left < COUNT(entries) ? left : COUNT(entries);
		check(pread(fd, entries, some * sizeof(entries[0]), from) ==
		      (ssize_t)(some * sizeof(entries[0])));
		for (i = 0; i < some; i++)
			n += (entries[i] & there) && !(entries[i] & of_a_file);
	}
	close(fd);
	return n;
}

/* Until so many of these pages, or fewer, are copied ones. */
static inline void wait_until_copied(const unsigned char *at, size_t bytes,
                                     size_t most)
{
	int looks = 0;

	while (library() && copied(at, bytes) > most) {
		check(looks++ < 20000);
		rest();
	}
}

/* Until the library was about to bring pages home so many times: it passed all blocks
 * that it may change now. */
static inline void wait_for_slices(int times)
{
	struct cow_stats before, now;
	int looks = 0;

	for (; library() && times > 0; times--) {
		check(stats(&before));
		do {
			check(looks++ < 20000);
			rest();
			check(stats(&now));
		} while (now.heal_ns_total == before.heal_ns_total);
	}
}

/* Until it gave up so many times for this reason. */
static inline void wait_for_refusals(enum cow_fallback reason, uint64_t times)
{
	uint64_t from = refused(reason);
	int looks = 0;

	while (library() && refused(reason) - from < times) {
		check(looks++ < 20000);
		rest();
	}
}

static inline void reads_seed_1(void *arg)
{
	struct healing *h = arg;

	gate_wait(h->gate);
	check(holds(h->block, h->bytes, 1));
}

/* A block of seed 2 whose pages are all copied: a child has those of seed 1. */
static inline struct healing healing_begin(size_t bytes)
{
	struct healing h = { .bytes = bytes };
	void *p;

	check(posix_memalign(&p, HUGE_PAGE, bytes) == 0);
	h.block = p;
	fill(p, bytes, 1);
	gate_make(h.gate);
	h.child = start(reads_seed_1, &h);
	fill(p, bytes, 2);
	check(!library() || copied(p, bytes) == bytes / PAGE);
	return h;
}

/* The child ends: the pages may come home. */
static inline void healing_may_begin(const struct healing *h)
{
	gate_open((int *)h->gate);
	finish(h->child);
}

static inline void healing_end(const struct healing *h)
{
	wait_until_copied(h->block, h->bytes, 0);
	close(h->gate[0]);
	close(h->gate[1]);
	free(h->block);
}

#endif
