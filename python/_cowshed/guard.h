/* SPDX-License-Identifier: MIT */
/*
 * Files that become shorter while they are mapped: see guard.c
 */
#ifndef COWSHED_PYTHON_GUARD_H
#define COWSHED_PYTHON_GUARD_H

#include "python/_cowshed/base.h"

/* Before a large copy of memory: -1 with OSError (ENODATA) if it lies in a mapped file whose last
 * byte is gone. Else 0. */
int guard_check(const void *low, size_t bytes);

#endif
