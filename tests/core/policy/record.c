/* SPDX-License-Identifier: MIT */
/*
 * Records a program's large blocks, for test_replay.c
 *
 *     gcc -O2 -fPIC -shared -o record.so tests/core/policy/record.c -ldl
 *     MALLOC_MMAP_THRESHOLD_=1048576 RECORD=out.txt LD_PRELOAD=./record.so PROGRAM
 *
 * It takes the place of malloc(), calloc(), realloc() and free(), and writes a line for each block
 * of 1 MiB and more: the time in ms, what happened, the number of the block, and KiB: of the block
 * when it came (+), of it that was resident when it went (-). A fork is a line `k`. libc maps each
 * such block by itself, so the resident pages are those that the program touched. Children are not
 * recorded, nor is memory of posix_memalign() and the like.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LEAST ((size_t)1 << 20)
#define BLOCKS 4096

static struct {
	void *p;
	size_t bytes;
	unsigned long number;
} blocks[BLOCKS];
static unsigned long numbers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char early[4096]; /* dlsym() asks for some bytes itself */
static int out = -1;
static pid_t who;

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);

static void
say(const char *line, int n)
{
	if (out >= 0 && getpid() == who && n > 0)
		(void)!write(out, line, (size_t)n);
}

static long
now(void)
{
	static struct timespec first;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	if (!first.tv_sec)
		first = t;
	return (t.tv_sec - first.tv_sec) * 1000 + (t.tv_nsec - first.tv_nsec) / 1000000;
}

static void
forks(void)
{
	char line[64];

	say(line, snprintf(line, sizeof(line), "%ld k 0 0\n", now()));
}

__attribute__((constructor)) static void
begin(void)
{
	const char *path = getenv("RECORD");

	next_malloc = dlsym(RTLD_NEXT, "malloc");
	next_realloc = dlsym(RTLD_NEXT, "realloc");
	next_free = dlsym(RTLD_NEXT, "free");
	who = getpid();
	if (path && access(path, F_OK) != 0) /* the first process alone */
		out = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	pthread_atfork(forks, NULL, NULL);
}

static void
came(void *p, size_t bytes)
{
	char line[64];

	if (!p || bytes < LEAST || getpid() != who) /* the lock may be another thread's in a child */
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS; i++)
		if (!blocks[i].p) {
			blocks[i].p = p;
			blocks[i].bytes = bytes;
			blocks[i].number = ++numbers;
			say(line, snprintf(line, sizeof(line), "%ld + %lu %zu\n", now(), numbers,
			                   bytes >> 10));
			break;
		}
	pthread_mutex_unlock(&lock);
}

static void
goes(void *p)
{
	static unsigned char pages[1 << 22];
	char line[64];
	size_t touched = 0;

	if (!p || ((uintptr_t)p & 0xfff) > 64 || getpid() != who)
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].p == p) {
			size_t n = (blocks[i].bytes + 4095) / 4096;

			if (n < sizeof(pages) && mincore((char *)p - ((uintptr_t)p & 4095), n * 4096, pages) == 0)
				for (size_t k = 0; k < n; k++)
					touched += pages[k] & 1;
			say(line, snprintf(line, sizeof(line), "%ld - %lu %zu\n", now(), blocks[i].number,
			                   touched * 4));
			blocks[i].p = NULL;
			break;
		}
	pthread_mutex_unlock(&lock);
}

void *
malloc(size_t bytes)
{
	void *p;

	if (!next_malloc)
		next_malloc = dlsym(RTLD_NEXT, "malloc");
	p = next_malloc(bytes);
	came(p, bytes);
	return p;
}

void *
calloc(size_t n, size_t size)
{
	static size_t used;
	static int asking;
	void *p;

	if (!next_calloc && asking) {
		p = early + used;
		used += (n * size + 15) / 16 * 16;
		return used <= sizeof(early) ? p : NULL;
	}
	if (!next_calloc) {
		asking = 1;
		next_calloc = dlsym(RTLD_NEXT, "calloc");
	}
	p = next_calloc(n, size);
	came(p, n * size);
	return p;
}

void *
realloc(void *old, size_t bytes)
{
	void *p;

	if (!next_realloc)
		next_realloc = dlsym(RTLD_NEXT, "realloc");
	goes(old);
	p = next_realloc(old, bytes);
	came(p, bytes);
	return p;
}

void
free(void *p)
{
	if ((char *)p >= early && (char *)p < early + sizeof(early))
		return;
	if (!next_free)
		next_free = dlsym(RTLD_NEXT, "free");
	goes(p);
	next_free(p);
}
