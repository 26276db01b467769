/* SPDX-License-Identifier: MIT */
/*
 * What a stranger tries
 *
 * honest() runs before it drops, as an honest program may do it; early() when it dropped;
 * strike() when the victim has written its secrets. An attack that reads says "leak" itself.
 * The victim notices one that writes. These touch only files that are the victim's, too.
 */
#ifndef COWSHED_TESTS_BORDER_ATTACKS_H
#define COWSHED_TESTS_BORDER_ATTACKS_H

#include "border.h"
#include "border_states.h"

#include <linux/falloc.h>
#include <setjmp.h>
#include <signal.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10
#endif
#define GROWN ((size_t)64 << 20)

struct attack {
	const char *name;
	void (*honest)(void);
	void (*early)(void);
	void (*strike)(void);
	int blind; /* needs no call but read and write */
};

static unsigned char bounce[MIB] __attribute__((aligned(4096)));
static sigjmp_buf torn;
static volatile int guarded; /* may meet a page that can't be read or written */

static void tears(int sig)
{
	(void)sig;
	if (!guarded) {
		say("ended by a signal");
		leave();
	}
	siglongjmp(torn, 1);
}

static void ready(void)
{
	struct sigaction act = { .sa_handler = tears, .sa_flags = SA_NODEFER };

	sigaction(SIGBUS, &act, NULL);
	sigaction(SIGSEGV, &act, NULL);
}

/* Each of these may be a page that can't be read. */
static int readable_key(const unsigned char *at, size_t bytes)
{
	volatile size_t page;
	volatile int found = 0;

	guarded = 1;
	for (page = 0; page < bytes && !found; page += PAGE) {
		if (sigsetjmp(torn, 1) == 0)
			found = has_key(at + page, PAGE);
	}
	guarded = 0;
	return found;
}

static void guarded_set(void *at, int value, size_t bytes)
{
	guarded = 1;
	if (sigsetjmp(torn, 1) == 0)
		memset(at, value, bytes);
	guarded = 0;
}

/* ---- Descriptors --------------------------------------------------------- */

/* Calls piece() with each part of a file that has pages. */
static void each_piece(int fd, void (*piece)(int, long, long))
{
	long at = 0, end, total = 0;

	while ((at = RAW3(SYS_lseek, fd, at, SEEK_DATA)) >= 0 && total < 256l << 20) {
		end = RAW3(SYS_lseek, fd, at, SEEK_HOLE);
		if (end <= at)
			return;
		piece(fd, at, end);
		total += end - at;
		at = end;
	}
}

static void piece_read(int fd, long at, long end)
{
	for (long n; at < end; at += n) {
		n = RAW4(SYS_pread64, fd, bounce, sizeof(bounce), at);
		if (n <= 0)
			return;
		if (has_key(bounce, (size_t)n)) {
			say("leak descriptor %d reads the victim's bytes", fd);
			return;
		}
	}
}

static void piece_map(int fd, long at, long end)
{
	long p = raw(SYS_mmap, 0, end - at, PROT_READ, MAP_SHARED, fd, at);

	if (p < 0 && p > -4096)
		return;
	if (readable_key((unsigned char *)p, (size_t)(end - at)))
		say("leak descriptor %d maps the victim's bytes", fd);
	RAW3(SYS_munmap, p, end - at, 0);
}

static void piece_write(int fd, long at, long end)
{
	memset(bounce, 'X', sizeof(bounce));
	for (long n; at < end; at += n) {
		n = end - at < (long)sizeof(bounce) ? end - at : (long)sizeof(bounce);
		n = RAW4(SYS_pwrite64, fd, bounce, n, at);
		if (n <= 0)
			return;
	}
}

static void piece_map_write(int fd, long at, long end)
{
	long p = raw(SYS_mmap, 0, end - at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);

	if (p < 0 && p > -4096)
		return;
	guarded_set((void *)p, 'X', (size_t)(end - at));
	RAW3(SYS_munmap, p, end - at, 0);
}

static void fd_read(int fd) { each_piece(fd, piece_read); }
static void fd_map(int fd) { each_piece(fd, piece_map); }

static void fd_write(int fd)
{
	if (fd_on_board(fd))
		each_piece(fd, piece_write);
}

static void fd_map_write(int fd)
{
	if (fd_on_board(fd))
		each_piece(fd, piece_map_write);
}

static void fd_again(int fd)
{
	char path[32];
	long other;

	if (!fd_on_board(fd))
		return;
	snprintf(path, sizeof(path), "self/fd/%d", fd);
	other = RAW4(SYS_openat, play.proc, path, O_RDWR, 0);
	if (other >= 0)
		each_piece((int)other, piece_write);
}

static void fd_punch(int fd)
{
	if (fd_on_board(fd))
		RAW4(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1l << 42);
}

static void fd_seal(int fd)
{
	if (fd_on_board(fd) &&
	    RAW3(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
		say("leak descriptor %d: the victim's file can be sealed", fd);
}

static void fd_held(int fd)
{
	if (fd_on_board(fd))
		say("leak descriptor %d is of the victim's file", fd);
}

static void read_fds(void) { each_fd(fd_read); }
static void map_fds(void) { each_fd(fd_map); }
static void write_fds(void) { each_fd(fd_write); }
static void map_write_fds(void) { each_fd(fd_map_write); }
static void open_fds(void) { each_fd(fd_again); }
static void punch_fds(void) { each_fd(fd_punch); }
static void seal_fds(void) { each_fd(fd_seal); }

/* Any number, at the place where its file happens to be. */
static void write_blindly(void)
{
	const int *const own[] = { play.to_stranger, play.to_victim };
	int fd, i, pipes;

	memset(bounce, 'X', 8192);
	for (fd = 3; fd < 2048; fd++) {
		pipes = fd == play.verdict;
		for (i = 0; i < 4; i++)
			pipes |= fd == own[i / 2][i % 2];
		if (!pipes)
			RAW3(SYS_write, fd, bounce, 8192);
	}
}

/* ---- Mappings ------------------------------------------------------------ */

static void region_held(const struct region *r)
{
	if (r->perms[3] == 's' && on_board(r->dev, r->ino))
		say("leak a shared mapping of the victim's file, %s", r->perms);
}

static void held(void)
{
	each_fd(fd_held);
	each_region(region_held);
}

static int word;

static void region_words(const struct region *r)
{
	size_t n = r->end - r->start;

	if (strncmp(r->perms, "rw-s", 4) != 0 || !on_board(r->dev, r->ino))
		return;
	guarded_set((void *)r->start, word, n < MIB ? n : MIB);
}

static void fd_close(int fd)
{
	if (fd_on_board(fd))
		RAW3(SYS_close, fd, 0, 0);
}

/* What relatives note for each other says then that nobody is there, or all. */
static void words_0(void)
{
	word = 0;
	each_fd(fd_close);
	each_region(region_words);
}

static void words_1(void)
{
	word = 0xff;
	each_region(region_words);
}

/* All that it may read, and reads: the pages must be mapped before. */
static void touch_own(void)
{
	for (int i = 0; i < blocks_count; i++)
		if (blocks[i].p)
			readable_key(blocks[i].p, BLOCK);
}

static void touch_and_words_0(void)
{
	touch_own();
	words_0();
}

static void region_read(const struct region *r)
{
	size_t n = r->end - r->start;

	if (r->perms[0] == 'r' && readable_key((unsigned char *)r->start, n < GROWN ? n : GROWN))
		say("leak a mapping, %s, shows the victim's bytes", r->perms);
}

static void read_regions(void) { each_region(region_read); }

/* One private page becomes a mapping of the file behind it. */
static void region_grow(const struct region *r)
{
	long p;

	if (r->perms[3] != 'p' || r->perms[0] != 'r')
		return;
	/* The first of a file reaches furthest. */
	for (const struct region *q = regions; q < r; q++)
		if (q->ino == r->ino && q->perms[3] == 'p' && q->perms[0] == 'r' &&
		    r->offset - q->offset < GROWN)
			return;
	p = RAW4(SYS_mremap, r->start, PAGE, GROWN, MREMAP_MAYMOVE);
	if (p < 0 && p > -4096)
		return;
	if (readable_key((unsigned char *)p, GROWN))
		say("leak a private page grew over the victim's bytes");
}

static void grow(void) { each_region(region_grow); }

static void read_and_grow(void)
{
	read_regions();
	grow();
}

/* ---- /proc/self/map_files ------------------------------------------------- */

static long open_region(const struct region *r, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "self/map_files/%lx-%lx", (unsigned long)r->start,
	         (unsigned long)r->end);
	return RAW4(SYS_openat, play.proc, path, flags, 0);
}

static void region_open_read(const struct region *r)
{
	long fd = open_region(r, O_RDONLY);

	if (fd < 0)
		return;
	each_piece((int)fd, piece_read);
	RAW3(SYS_close, fd, 0, 0);
}

static void region_open_write(const struct region *r)
{
	long fd = on_board(r->dev, r->ino) ? open_region(r, O_RDWR) : -1;

	if (fd < 0)
		return;
	each_piece((int)fd, piece_write);
	RAW3(SYS_close, fd, 0, 0);
}

static void region_open_punch(const struct region *r)
{
	long fd = on_board(r->dev, r->ino) ? open_region(r, O_RDWR) : -1;

	if (fd < 0)
		return;
	fd_punch((int)fd);
	RAW3(SYS_close, fd, 0, 0);
}

static void open_read(void) { each_region(region_open_read); }
static void open_write(void) { each_region(region_open_write); }
static void open_punch(void) { each_region(region_open_punch); }

/* ---- Watches: they act on the memory of their maker ----------------------- */

static char watches[LAST_FD];

static int is_watch(int fd)
{
	char link[128];

	return link_of(fd, link, sizeof(link)) && strstr(link, "[userfaultfd]") != NULL;
}

static void note_watches(void)
{
	for (int fd = 3; fd < LAST_FD; fd++)
		watches[fd] = (char)is_watch(fd);
}

/* Later the stranger may have watches of its own memory. */
static void find_watches(void)
{
	for (int fd = 3; fd < LAST_FD; fd++)
		if (watches[fd] && is_watch(fd))
			say("leak descriptor %d is the victim's userfaultfd", fd);
}

#endif
