/* SPDX-License-Identifier: MIT */
/*
 * A program that closes every descriptor, as daemons do, and goes on
 */
#include "program.h"

#include <dirent.h>
#include <sys/syscall.h>

enum { BLOCKS = 8 };

static const size_t bytes = 2 * MIB + 3;
static unsigned char *blocks[BLOCKS];
static uint64_t seed;

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

static void close_each(void)
{
	int fd;

	for (fd = 3; fd < 20000; fd++)
		close(fd);
}

static void close_listed(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int fd;

	if (dir == NULL) {
		close_each();
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		fd = atoi(entry->d_name);
		if (fd > 2 && fd != dirfd(dir))
			close(fd);
	}
	closedir(dir);
}

static void close_range_of_all(void)
{
	if (close_range(3, ~0U, 0) != 0)
		close_each();
}

static void goes_on(void *arg)
{
	(void)arg;
	check_all();
	close_range_of_all();
	write_all(seed + 50);
	check_all();
	free(blocks[0]);
	blocks[0] = get_filled(bytes, seed);
	check_all();
}

/* Allocates, frees, forks, clones by fork, after everything was closed. */
static void live(uint64_t base)
{
	unsigned char *p;
	int i;

	check_all();
	in_child(goes_on, NULL);
	check_all();
	write_all(base);
	for (i = 0; i < 20; i++) {
		p = calloc(1, (size_t)(i + 1) * 200000);
		check(p != NULL && all(p, (size_t)(i + 1) * 200000, 0));
		fill(p, (size_t)(i + 1) * 200000, 3);
		free(blocks[i % BLOCKS]);
		blocks[i % BLOCKS] =
			get_filled(bytes, seed + (uint64_t)(i % BLOCKS));
		check(holds(p, (size_t)(i + 1) * 200000, 3));
		free(p);
	}
	in_child(goes_on, NULL);
	check_all();
	in_child(goes_on, NULL);
}

int main(int argc, char **argv)
{
	int i;

	/* As some do, before anything was allocated. */
	if (argc > 1 && strcmp(argv[1], "first") == 0)
		close_range_of_all();
	for (i = 0; i < BLOCKS; i++)
		blocks[i] = get(bytes);
	write_all(1);
	close_each();
	live(100);
	close_listed();
	live(200);
	close_range_of_all();
	live(300);
	closefrom(3);
	live(400);
	for (i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	puts("close_all: done");
	return 0;
}
