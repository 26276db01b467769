/* SPDX-License-Identifier: MIT */
/*
 * What lies in the packs that this process has open, by the kernel's account, and who else
 * is there to hold something of them
 */
#ifndef COWSHED_TESTS_PACKS_H
#define COWSHED_TESTS_PACKS_H

#include "../programs/program.h"
#include "share/group.h"
#include "share/layout.h"

#include <dirent.h>
#include <fcntl.h>

/* Did anybody hold something of these packs without a slot? It stays, then. */
static int crowd;

/* Bytes of a pack's storages, without what counts them. */
static inline long pack_bytes(int fd)
{
	struct cow__pack_head head;
	off_t at, hole;
	long bytes = 0;

	check(pread(fd, &head, sizeof(head), 0) == sizeof(head) &&
	      head.magic == COW__PACK_MAGIC);
	crowd |= head.row_epoch[COW__CROWD] != 0;
	at = (off_t)cow__data_offset(head.pages);
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		hole = lseek(fd, at, SEEK_HOLE);
		check(hole > at);
		bytes += hole - at;
		at = hole;
	}
	check(errno == ENXIO);
	return bytes;
}

/* The same of all packs that this process has open. */
static inline long packs(int *ret_count)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	long bytes = 0;

	*ret_count = 0;
	check(d != NULL);
	while ((e = readdir(d)) != NULL) {
		char name[64];
		ssize_t n = readlinkat(dirfd(d), e->d_name, name, 63);

		if (n <= 0 || strncmp(name, "/memfd:cowshed-pack", 19) != 0)
			continue;
		bytes += pack_bytes(atoi(e->d_name));
		++*ret_count;
	}
	closedir(d);
	return bytes;
}

/* Who reads /proc/PID/maps of a dead member, on any processor, keeps its memory until it has
 * read, and its lock with it. */
static inline int slots_of_others(struct cow_group *group)
{
	int count = 0;

	cow__share_enter();
	for (uint32_t n = 0; n < COW__SLOTS; n++)
		count += cow__slot_alive(group, n);
	cow__share_leave();
	return count;
}

#endif
