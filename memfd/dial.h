/* SPDX-License-Identifier: MIT */
/*
 * Reaching a service on this machine, or starting it
 */
#ifndef COW_MEMFD_DIAL_H
#define COW_MEMFD_DIAL_H

#include "memfd/descriptor.h"

#include <stdbool.h>
#include <stdint.h>

#define COW__ADDRESS_MAX 107 /* bytes of a path, or of "@name" */

/*
 * Connects to a SOCK_SEQPACKET socket at a path or "@name", `until` a moment of
 * cow__now(), whatever signals come. The socket does not block: cow__dial_wait(). It
 * is in `ret` from before it is connected; after an error `ret` is none.
 * -ETIMEDOUT: nobody was accepted; -ENOENT, -ECONNREFUSED: nobody is there;
 * -ENAMETOOLONG.
 */
int cow__dial(const char *address, uint64_t until, struct cow__descriptor *ret);

/* Waits until something can be written to it, or there is something to read. 0,
 * -ETIMEDOUT. */
int cow__dial_wait(int fd, bool to_write, uint64_t until);

/* Runs a program, looked up in PATH, and waits for its end: its exit status, or
 * -errno. -EPERM: this process has raised privileges (set-user-ID), and it is no
 * path from '/' on; one that is gets no environment then. -ECHILD: it has ended, and
 * how is not known (somebody else waited, or the program ignores its children). */
int cow__run(const char *program, char *const argv[]);

#endif
