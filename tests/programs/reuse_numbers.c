/* SPDX-License-Identifier: MIT */
/*
 * Descriptors closed behind the allocator's back, their numbers given to files
 *
 * The allocator believes that such a number is its own. If it maps it, punches holes
 * into it, resizes, seals or closes it, that would hit the program's file. The files
 * must stay as they are, and open.
 */
#include "program.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { BLOCKS = 6, FILES = 300 };

static const size_t bytes = 2 * MIB;
static unsigned char *blocks[BLOCKS];
static uint64_t seed;
static int files[FILES];
static struct stat made;

static void write_all(uint64_t new_seed)
{
	int i;

	seed = new_seed;
	for (i = 0; i < BLOCKS; i++)
		fill(blocks[i], bytes, seed + (uint64_t)i);
}

static void check_all(void)
{
	int i;

	for (i = 0; i < BLOCKS; i++)
		check(holds(blocks[i], bytes, seed + (uint64_t)i));
}

static void rewrites(void *arg)
{
	(void)arg;
	check_all();
	write_all(99);
	free(blocks[1]);
	blocks[1] = get_filled(bytes, 100);
	check_all();
}

/* All calls for which an allocator might use a descriptor. */
static void live(uint64_t base)
{
	unsigned char *p;
	pid_t child;
	int i;

	check_all();
	child = start(rewrites, NULL);
	write_all(base);
	finish(child);
	check_all();
	for (i = 0; i < 12; i++) {
		p = calloc(1, (size_t)(i + 1) * 400000);
		check(p != NULL && all(p, (size_t)(i + 1) * 400000, 0));
		memset(p, i + 1, (size_t)(i + 1) * 400000);
		p = realloc(p, (size_t)(i + 1) * 800000);
		check(p != NULL && all(p, (size_t)(i + 1) * 400000,
		                       (unsigned char)(i + 1)));
		free(p);
	}
	for (i = 0; i < BLOCKS; i++) {
		free(blocks[i]);
		blocks[i] = get_filled(bytes, seed + (uint64_t)i);
	}
	in_child(rewrites, NULL);
	check_all();
}

/* Every number has the same small file behind it. */
static void check_files(void)
{
	struct stat now;
	char text[16];
	int i;

	for (i = 0; i < FILES; i++) {
		check(fstat(files[i], &now) == 0);
		check(now.st_ino == made.st_ino && now.st_dev == made.st_dev);
		check(now.st_size == 12);
		check(pread(files[i], text, sizeof(text), 0) == 12);
		check(memcmp(text, "not for you\n", 12) == 0);
	}
}

static void take_all_numbers(const char *name)
{
	int i;

	for (i = 0; i < FILES; i++) {
		files[i] = open(name, O_RDWR);
		check(files[i] > 2);
	}
	check(fstat(files[0], &made) == 0);
}

int main(void)
{
	char name[] = "/tmp/reuse-XXXXXX";
	int i, fd = mkstemp(name);

	check(fd >= 0);
	check(write(fd, "not for you\n", 12) == 12);
	for (i = 0; i < BLOCKS; i++)
		blocks[i] = get(bytes);
	write_all(1);
	live(100);
	/* All numbers below FILES, and those where an allocator would hide. */
	for (i = 3; i < 20000; i++)
		close(i);
	take_all_numbers(name);
	for (i = 400; i < 20000; i++)
		if (fcntl(i, F_GETFD) < 0)
			dup2(files[0], i);
	live(200);
	check_files();
	live(300);
	check_files();
	/* At the end only the program's own files are open. */
	for (i = 400; i < 20000; i++) {
		struct stat now;

		if (fstat(i, &now) == 0 && now.st_ino == made.st_ino)
			check(now.st_size == 12);
	}
	check(unlink(name) == 0);
	for (i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	check_files();
	puts("reuse_numbers: done");
	return 0;
}
