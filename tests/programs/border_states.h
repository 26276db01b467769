/* SPDX-License-Identifier: MIT */
/*
 * The states that the victim's memory is in, and how it goes on
 *
 * before() runs in the common ancestor. honest() and late() run in the stranger before and
 * after it drops; after() in the victim, then. Each block has a shadow, memory that is in no
 * allocator. It holds what the victim's block must hold.
 */
#ifndef COWSHED_TESTS_BORDER_STATES_H
#define COWSHED_TESTS_BORDER_STATES_H

#include "border.h"
#include "healing.h"

#define BLOCK (4 * MIB)
enum { BLOCKS = 16 };

struct state {
	const char *name;
	void (*before)(void);
	void (*honest)(void);
	void (*late)(void);
	void (*after)(void);
};

static struct {
	unsigned char *p, *shadow;
} blocks[BLOCKS];
static int blocks_count;
static int by_mmap;      /* blocks are the program's own mappings */
static int older_end[2]; /* an older child waits there */
static int advised;      /* a child does not see the memory as its parent */

static unsigned char *anonymous(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(p != MAP_FAILED);
	return p;
}

static int block_new(unsigned seed)
{
	int i = blocks_count++;

	check(i < BLOCKS);
	blocks[i].p = by_mmap ? anonymous(BLOCK) : get_pages(BLOCK);
	blocks[i].shadow = (unsigned char *)raw(SYS_mmap, 0, BLOCK, PROT_READ | PROT_WRITE,
	                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check((intptr_t)blocks[i].shadow > 0);
	fill(blocks[i].p, BLOCK, seed);
	fill(blocks[i].shadow, BLOCK, seed);
	return i;
}

static void block_free(int i)
{
	if (by_mmap)
		munmap(blocks[i].p, BLOCK);
	else
		free(blocks[i].p);
	blocks[i].p = NULL;
}

static void block_key(int i, size_t page)
{
	memcpy(blocks[i].p + page * PAGE, key(), key_bytes());
	memcpy(blocks[i].shadow + page * PAGE, key(), key_bytes());
}

static void block_keys(int i, unsigned seed)
{
	fill(blocks[i].p, BLOCK, seed);
	fill(blocks[i].shadow, BLOCK, seed);
	for (size_t page = 0; page < BLOCK / PAGE; page++)
		block_key(i, page);
}

/* Has the victim what it wrote? */
static void blocks_check(void)
{
	for (int i = 0; i < blocks_count; i++) {
		if (!blocks[i].p)
			continue;
		for (size_t at = 0; at < BLOCK; at += PAGE)
			if (memcmp(blocks[i].p + at, blocks[i].shadow + at, PAGE) != 0) {
				say("leak page %zu of the victim's block %d was changed",
				    at / PAGE, i);
				return;
			}
	}
}

/* As healing.h, for users that may not read it. */
static size_t copied_or_0(const unsigned char *at)
{
	return access("/proc/self/pagemap", R_OK) == 0 && at ? copied(at, BLOCK) : 0;
}

/* Time for an allocator to bring copied pages home, as a program leaves it. */
static void settle(void)
{
	int i;

	for (i = 0; library() && i < 40; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		free(get(8 * MIB));
		if (i > 5 && copied_or_0(blocks[0].p) == 0)
			break;
	}
}

static void clean_before(void)
{
	block_new(1);
	block_new(2);
}

static void nothing(void) {}
static void one_after(void)
{
	block_key(0, 2);
	settle();
	block_key(0, 3);
}

static void dense_after(void)
{
	block_keys(0, 3);
	settle();
}

static void twice_after(void)
{
	fill(blocks[0].p, BLOCK, 3);
	settle();
	fill(blocks[0].p, BLOCK, 4);
	settle();
	block_keys(0, 5);
	settle();
}

/* The two blocks are frozen by a fork whose child lives. */
static void older_before(void)
{
	char c;

	clean_before();
	gate_make(older_end);
	if (fork() == 0) {
		close(play.verdict);
		close(older_end[1]);
		(void)!read(older_end[0], &c, 1);
		_exit(0);
	}
	close(older_end[0]);
	fill(blocks[0].p, BLOCK, 6);
	fill(blocks[0].shadow, BLOCK, 6);
}

static void cycle(unsigned seed)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0)
		_exit(0);
	fill(blocks[0].p, BLOCK, seed);
	fill(blocks[0].shadow, BLOCK, seed);
	check(waitpid(pid, NULL, 0) == pid);
}

/* An allocator learns that this program rewrites between forks. */
static void cycles_before(void)
{
	clean_before();
	for (unsigned i = 0; i < 6; i++)
		cycle(10 + i);
}

static void cycles_after(void)
{
	block_keys(0, 20);
	settle();
	for (unsigned i = 0; i < 3; i++) {
		cycle(21 + i);
		block_keys(0, 30 + i);
	}
	settle();
}

/* Thawed in place before the stranger comes. */
static void healed_before(void)
{
	clean_before();
	cycle(7);
	settle();
}

/* Of two blocks, the one at the higher address: a mapping of the other grows over it. */
static int higher(void) { return blocks[1].p > blocks[0].p; }
static int gone = -1;

static void two_before(void)
{
	clean_before();
	gone = higher();
}

static void frees(void) { block_free(gone); }

static void freed_after(void)
{
	settle();
	block_key(gone, 2);
	settle();
	block_key(gone, 3);
	block_keys(gone, 4);
	settle();
}

static void warm_before(void)
{
	unsigned char *p[4];
	int round, i;

	block_new(1);
	for (round = 0; round < 20; round++) {
		for (i = 0; i < 4; i++)
			memset(p[i] = get_pages(BLOCK), 2, BLOCK);
		for (i = 0; i < 4; i++)
			free(p[i]);
	}
}

static void new_after(void)
{
	for (int i = 0; i < 4; i++)
		block_keys(block_new(3), 4);
}

/* A secret that was freed before the fork. libc's malloc would have unmapped it. */
static void freed_before(void)
{
	int i;

	clean_before();
	i = block_new(3);
	block_keys(i, 3);
	block_free(i);
}

static void limbo_after(void)
{
	block_free(0);
	settle();
	new_after();
	settle();
}

static unsigned char *advised_part(void)
{
	advised = 1;
	return blocks[0].p + MIB;
}

/* The second MiB is advised. Pages of its first half had secrets before. */
static void advise(int advice)
{
	size_t page = MIB / PAGE;

	block_new(1);
	for (size_t i = 0; i < page / 2; i++)
		block_key(0, page + i);
	if (madvise(advised_part(), MIB, advice) != 0) {
		say("skip no such advice: %s", strerror(errno));
		leave();
	}
}

static void dontfork_old(void) { advise(MADV_DONTFORK); }
static void wipeonfork_old(void) { advise(MADV_WIPEONFORK); }

static void advise_new(int advice)
{
	block_new(1);
	if (madvise(advised_part(), MIB, advice) != 0) {
		say("skip no such advice: %s", strerror(errno));
		leave();
	}
	for (size_t i = 0; i < MIB / PAGE; i++)
		block_key(0, MIB / PAGE + i);
}

static void dontfork_new(void) { advise_new(MADV_DONTFORK); }
static void wipeonfork_new(void) { advise_new(MADV_WIPEONFORK); }

/* Advised while a child has all, who ended; then written. */
static void dontfork_later(void)
{
	block_new(1);
	cycle(5);
	settle();
	madvise(advised_part(), MIB, MADV_DONTFORK);
	for (size_t i = 0; i < MIB / PAGE; i++)
		block_key(0, MIB / PAGE + i);
}

#endif
