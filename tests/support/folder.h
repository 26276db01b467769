/* SPDX-License-Identifier: MIT */
/*
 * Test support: a folder and a name of shared memory for one test
 *
 * Names that nobody had before. leave() removes the folder, and
 * looks for what a test left behind under its name. Of a test that failed the
 * runner removes both (left.h).
 */
#ifndef COWSHED_TESTS_FOLDER_H
#define COWSHED_TESTS_FOLDER_H

#include "tests/support/left.h"
#include "tests/support/support.h"

#include <cowshed-file.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], shm[64];

static inline const char *in_folder(const char *name)
{
	static char paths[4][128];
	static int n;
	char *p = paths[n++ % 4];

	snprintf(p, sizeof(paths[0]), "%s/%s", folder, name);
	return p;
}

/* Names in a folder with this text in them; hidden ones only if they are ours. */
static inline int entries(const char *path, const char *with)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir)) != NULL)
		n += e->d_name[0] != '.' ? strstr(e->d_name, with) != NULL
		                         : strstr(e->d_name, "cowshed") != NULL;
	closedir(dir);
	return n;
}

static inline void enter(void)
{
	left_folder(folder, "file");
	snprintf(shm, sizeof(shm), "/%s", strrchr(folder, '/') + 1);
}

static inline void leave(void)
{
	DIR *dir = opendir(folder);
	struct dirent *e;

	while ((e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			must(unlinkat(dirfd(dir), e->d_name, 0) == 0);
	closedir(dir);
	must(rmdir(folder) == 0);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
}

static inline size_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (size_t)st.st_size : SIZE_MAX;
}

static inline void ck_file(const char *path, size_t from, size_t bytes, uint64_t seed)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char *p = malloc(bytes + 1);

	must(fd >= 0 && p != NULL);
	ck_assert_int_eq(pread(fd, p, bytes, (off_t)from), (ssize_t)bytes);
	ck_pattern(p, bytes, seed);
	free(p);
	close(fd);
}

static inline void make_file(const char *path, size_t bytes, uint64_t seed)
{
	struct cow_storage *s = new_filled(bytes, 0, seed);

	ok(cow_storage_save(s, path, 0, COW_IO_PLAIN, NULL));
	cow_storage_unref(s);
}

#endif
