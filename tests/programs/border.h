/* SPDX-License-Identifier: MIT */
/*
 * A play between two relatives: a victim, and a stranger that gave up privileges
 *
 * The stranger is honest until it drops. Then the victim goes on with its memory, the
 * stranger attacks, and the victim looks at its bytes. All wait for each other at pipes.
 * What either finds is a line in the pipe `verdict`: "leak ...", "skip ...", "fine" of the
 * victim, "done" of the stranger.
 *
 * An attack makes its system calls by an instruction of its own, raw(), since a hostile
 * program calls no wrapper of a library.
 */
#ifndef COWSHED_TESTS_BORDER_H
#define COWSHED_TESTS_BORDER_H

#include "program.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

enum { FILES = 256, NOBODY = 65534, LAST_FD = 8192 };

/* The files that the victim has or had. All processes of a play see it. */
struct board {
	int n;
	struct {
		uint64_t dev, ino;
	} file[FILES];
};

static struct {
	int verdict, proc; /* the latter: /proc, for processes that can't name it */
	int to_stranger[2], to_victim[2];
	struct board *board;
	const char *direction;
	pid_t stranger; /* if the victim made it */
} play;

static inline long raw(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long r;

	__asm__ volatile("syscall"
	                 : "=a"(r)
	                 : "0"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e, x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
	                 : "+r"(x0)
	                 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
	                 : "memory");
	return x0;
#else
#error "border.h knows x86-64 and aarch64"
#endif
}

#define RAW3(n, a, b, c) raw(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RAW4(n, a, b, c, d) raw(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
	char line[256];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(line, sizeof(line) - 1, format, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	RAW3(SYS_write, play.verdict, line, n);
}

/* Seccomp's strict mode allows exit() of one thread alone. */
__attribute__((noreturn)) static inline void leave(void)
{
	for (;;)
		RAW3(SYS_exit, 0, 0, 0);
}

static inline void tell(const int gate[2])
{
	RAW3(SYS_write, gate[1], "!", 1);
}

/* By libc: an allocator may bring pages home meanwhile. */
static inline void await(const int gate[2])
{
	ssize_t n;
	char c;

	do {
		n = read(gate[0], &c, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		leave();
}

/* In a process whose memory may be spoiled, or which may only read and write. */
static inline void await_raw(const int gate[2])
{
	char c;
	long n;

	do {
		n = RAW3(SYS_read, gate[0], &c, 1);
	} while (n == -EINTR);
	if (n != 1)
		leave();
}

/* ---- Secrets ------------------------------------------------------------- */

/* It begins a page. The program's file has only its parts. */
static inline const char *key(void)
{
	static char text[32];

	if (!text[0])
		snprintf(text, sizeof(text), "%s-%s-%d", "the victim's", "own", 4711);
	return text;
}

static inline size_t key_bytes(void) { return strlen(key()); }

static inline int has_key(const void *memory, size_t bytes)
{
	const char *p = memory;

	for (size_t at = 0; at + key_bytes() <= bytes; at += PAGE)
		if (memcmp(p + at, key(), key_bytes()) == 0)
			return 1;
	return 0;
}

/* ---- What a process has of the allocator --------------------------------- */

struct region {
	uintptr_t start, end;
	uint64_t offset, dev, ino;
	char perms[8], name[48];
};

static inline int ours(const char *link) { return strncmp(link, "/memfd:cowshed", 14) == 0; }

static inline int link_of(int fd, char *ret, size_t bytes)
{
	char path[32];
	long n;

	ret[0] = '\0';
	if (RAW3(SYS_fcntl, fd, F_GETFD, 0) < 0)
		return 0;
	snprintf(path, sizeof(path), "self/fd/%d", fd);
	n = RAW4(SYS_readlinkat, play.proc, path, ret, bytes - 1);
	ret[n < 0 ? 0 : n] = '\0';
	return n > 0;
}

static inline int on_board(uint64_t dev, uint64_t ino)
{
	for (int i = 0; i < play.board->n; i++)
		if (play.board->file[i].dev == dev && play.board->file[i].ino == ino)
			return 1;
	return 0;
}

static inline int fd_on_board(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && on_board(st.st_dev, st.st_ino);
}

/* Calls visit() with each descriptor of an allocator's memory. */
static inline void each_fd(void (*visit)(int))
{
	char link[128];

	for (int fd = 3; fd < LAST_FD; fd++)
		if (link_of(fd, link, sizeof(link)) && ours(link))
			visit(fd);
}

enum { REGIONS = 4096 };

/* The mappings of an allocator's files. Returns how many. */
static inline int list_regions(struct region *ret)
{
	static char text[4 << 20];
	unsigned major, minor;
	unsigned long start, end, offset, ino;
	long n, all = 0, fd = RAW4(SYS_openat, play.proc, "self/maps", O_RDONLY, 0);
	int count = 0;

	while ((n = RAW3(SYS_read, fd, text + all, sizeof(text) - 1 - all)) > 0)
		all += n;
	text[all] = '\0';
	RAW3(SYS_close, fd, 0, 0);
	for (char *line = text, *next; *line && count < REGIONS; line = next) {
		struct region *r = &ret[count];

		next = strchr(line, '\n');
		if (!next)
			break;
		*next++ = '\0';
		r->name[0] = '\0';
		if (sscanf(line, "%lx-%lx %7s %lx %x:%x %lu %47s", &start, &end, r->perms,
		           &offset, &major, &minor, &ino, r->name) < 8 ||
		    !ours(r->name))
			continue;
		r->start = start;
		r->end = end;
		r->offset = offset;
		r->dev = makedev(major, minor);
		r->ino = ino;
		count++;
	}
	return count;
}

static struct region regions[REGIONS];

static inline void each_region(void (*visit)(const struct region *))
{
	int n = list_regions(regions);

	for (int i = 0; i < n; i++)
		visit(&regions[i]);
}

static inline void post(uint64_t dev, uint64_t ino)
{
	struct board *b = play.board;

	if (on_board(dev, ino) || b->n == FILES)
		return;
	b->file[b->n].dev = dev;
	b->file[b->n].ino = ino;
	b->n++;
}

static inline void post_fd(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0)
		post(st.st_dev, st.st_ino);
}

static inline void post_region(const struct region *r) { post(r->dev, r->ino); }

/* The victim notes all of its files on the board. */
static inline void publish(void)
{
	each_fd(post_fd);
	each_region(post_region);
}

#endif
