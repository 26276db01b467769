/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that a program may close
 *
 * A program owns its descriptor table. It may close every number (daemons do),
 * and open a file of its own under a number of ours. So a descriptor is kept with
 * the identity of its file, and every use checks that first. Our descriptors are
 * CLOEXEC from birth. They live above the soft limit on descriptors if possible, where no
 * program looks, and otherwise high in the table.
 *
 * The check and the use are two system calls. Between them another thread can close our
 * number and open its own file under it. So can a process that shares the table
 * (CLONE_FILES), and a handler of a signal. With threads, what can be checked once more
 * after the use is checked then (cow__descriptor_stayed()), before it has an effect:
 *
 *	mappings        shared ones are checked before they get into place (memfd/map.c)
 *	duplicates      the identity of the new descriptor counts
 *	punched holes   through a mapping that was checked
 *	seals, locks, contents   the result is an error if the file changed; a seal or a
 *	                lock may have gone to the other file
 *
 * The second check suffices, because a number that was another file's at the use is ours
 * again at the check only if the program has put our file back there. It would have to
 * duplicate a descriptor before that it did not open.
 *
 * Nothing can be undone of a descriptor that was sent, closed or given to a ring, or of a
 * read or write of a file's bytes. There the first check alone is made, and a program whose
 * threads close numbers that they did not open can lose a file of its own so.
 */
#ifndef COW_MEMFD_DESCRIPTOR_H
#define COW_MEMFD_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

struct cow__descriptor {
	int fd; /* -1: none */
	uint32_t type; /* S_IFMT of the file's mode; 0: an anonymous inode */
	uint64_t dev, ino;
};

#define COW__NO_DESCRIPTOR ((struct cow__descriptor){ .fd = -1 })

/* The least number of ours, if the program's limit allows it. */
#define COW__FD_HIGH 64

/* Names the thread of ours that may live beside a program with one thread. It makes no
 * process, and asks for no limit. */
struct cow__thread;
void cow__descriptor_helper(const struct cow__thread *thread);

/* Takes ownership of `fd`, and moves it up in the table if possible. Never fails.
 * If fstat() fails the identity stays unknown, and every check says no. */
struct cow__descriptor cow__descriptor_adopt(int fd);

/* Describes a descriptor that stays the caller's, with its identity. */
struct cow__descriptor cow__descriptor_of(int fd);

/* Make another descriptor of the same file. dup: one of ours. give: one for the
 * program, with the lowest free number. Both are CLOEXEC. 0 or -errno; -EBADF: it
 * is not that file any more. */
int cow__descriptor_dup(const struct cow__descriptor *d,
                        struct cow__descriptor *ret);
int cow__descriptor_give(const struct cow__descriptor *d, int *ret);

/* Is it still the file that we opened? */
bool cow__descriptor_ok(const struct cow__descriptor *d);

/*
 * Does that question have an answer? All eventfds, epolls, timerfds and the like share one
 * inode, and all openings of a device share its node's. Two of these are never known to be
 * the same file, so one that another process sent must not wait in the table. `devices`:
 * openings of one character device may be taken for each other all the same. Before Linux
 * 5.16 rings share the one inode, too, which are ours.
 */
bool cow__descriptor_has_identity(const struct cow__descriptor *d, bool devices);

/* After a use: was it our file throughout? A process with one thread is not asked: yes. */
bool cow__descriptor_stayed(const struct cow__descriptor *d);

/* Can no other thread change the table of descriptors meanwhile? */
bool cow__descriptor_alone(void);

/* How many descriptors the process may have open. */
uint64_t cow__descriptor_limit(void);

/* Closes it if it is still our file. Forgets it in either case. */
void cow__descriptor_close(struct cow__descriptor *d);

/* The same for a descriptor that another process sent, whatever it is. A TCP
 * socket with SO_LINGER is told not to linger: its last close would otherwise
 * wait for what its peer never reads. */
void cow__descriptor_drop(struct cow__descriptor *d);

#endif
