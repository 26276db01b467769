/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that a program may close under us
 *
 * A program owns its descriptor table: it may close every number (daemons do),
 * and get one of ours back for a file of its own. So a descriptor is kept with
 * the identity of its file, and every use checks it first. Ours are CLOEXEC
 * from birth and live high in the table, out of the program's way.
 */
#ifndef COW_MEMFD_DESCRIPTOR_H
#define COW_MEMFD_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

struct cow__descriptor {
	int fd; /* -1: none */
	uint64_t dev, ino;
};

#define COW__NO_DESCRIPTOR ((struct cow__descriptor){ .fd = -1 })

/* Ours have at least this number, if the program's limit allows it. */
#define COW__FD_HIGH 64

/* Takes ownership of `fd` (moves it up in the table where it can). Never
 * fails: without fstat the identity stays unknown and checks say no. */
struct cow__descriptor cow__descriptor_adopt(int fd);

/* One that stays the caller's, with its identity. */
struct cow__descriptor cow__descriptor_of(int fd);

/* Another descriptor of the same file: ours, or (give) for the program, as
 * low as it comes. Both CLOEXEC. 0 or -errno. */
int cow__descriptor_dup(const struct cow__descriptor *d,
                        struct cow__descriptor *ret);
int cow__descriptor_give(const struct cow__descriptor *d, int *ret);

/* Is it still the file that we opened? */
bool cow__descriptor_ok(const struct cow__descriptor *d);

/* How many the process may have open. */
uint64_t cow__descriptor_limit(void);

/* Closes it if it is still ours; forgets it in any case. */
void cow__descriptor_close(struct cow__descriptor *d);

/* The same for one that a stranger sent, whatever it is: the last close of a TCP
 * socket that lingers (SO_LINGER) would wait for what its peer never reads. */
void cow__descriptor_drop(struct cow__descriptor *d);

#endif
