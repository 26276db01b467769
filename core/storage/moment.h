/* SPDX-License-Identifier: MIT */
/*
 * Clones of one moment: see moment.c
 */
#ifndef COW_CORE_STORAGE_MOMENT_H
#define COW_CORE_STORAGE_MOMENT_H

#include <stdint.h>

/* The helper's job: forgets the child of the last moment when it has ended. Engine locked. */
uint64_t cow__moment_job(uint64_t now);

#endif
