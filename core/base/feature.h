/* SPDX-License-Identifier: MIT */
/*
 * What the kernel offers, for the shim
 */
#ifndef COW_CORE_BASE_FEATURE_H
#define COW_CORE_BASE_FEATURE_H

#include <stdbool.h>

/* Do memfds cost a program more than libc's memory does? See memfd/probe.h. */
bool cow__memfds_are_slow(void);

#endif
