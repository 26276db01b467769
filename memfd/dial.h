/* SPDX-License-Identifier: MIT */
/*
 * Reaching a service on this machine, or starting it
 */
#ifndef COW_MEMFD_DIAL_H
#define COW_MEMFD_DIAL_H

#include "memfd/descriptor.h"

#include <stdint.h>

#define COW__ADDRESS_MAX 107 /* bytes of a path, or of "@name" */

/*
 * Connects to a SOCK_SEQPACKET socket at a path or "@name". No call on it waits
 * longer than `timeout_ms` (-EAGAIN then). -ENOENT, -ECONNREFUSED: nobody is
 * there; -ENAMETOOLONG.
 */
int cow__dial(const char *address, uint32_t timeout_ms,
              struct cow__descriptor *ret);

/* Runs a program, looked up in PATH, and waits for its end: its exit status, or
 * -errno. -ECHILD: it has ended, and how is not known (somebody else waited, or
 * the program ignores its children). */
int cow__run(const char *program, char *const argv[]);

#endif
