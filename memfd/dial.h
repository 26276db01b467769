/* SPDX-License-Identifier: MIT */
/*
 * Dialling: reaching a service on this machine, or starting it
 */
#ifndef COW_MEMFD_DIAL_H
#define COW_MEMFD_DIAL_H

#include "memfd/descriptor.h"

#include <stdbool.h>
#include <stdint.h>

#define COW__ADDRESS_MAX 107 /* bytes of a path, or of "@name" */

/*
 * Connects to a SOCK_SEQPACKET socket at a path or "@name". `until` is a moment
 * of cow__now(); signals don't end the wait. The socket does not block: use
 * cow__dial_wait(). It is in `ret` before it is connected; after an error `ret`
 * is none. -ETIMEDOUT: the service did not accept in time. -ENOENT,
 * -ECONNREFUSED: there is no service. -ENAMETOOLONG.
 */
int cow__dial(const char *address, uint64_t until, struct cow__descriptor *ret);

/* Waits until the socket can be written, or has something to read. 0,
 * -ETIMEDOUT. */
int cow__dial_wait(int fd, bool to_write, uint64_t until);

/* Runs a program, which is looked up in PATH, and waits for its end. Returns its
 * exit status, or -errno. In a process with raised privileges (set-user-ID) the
 * program gets no environment, and its path must begin with '/': -EPERM
 * otherwise. -ECHILD: it has ended, and its status is lost. Another part of the
 * process waited for it, or the process ignores its children. */
int cow__run(const char *program, char *const argv[]);

#endif
