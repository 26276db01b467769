/* SPDX-License-Identifier: MIT */
/*
 * Clones and copies by call site: see sites.c
 */
#ifndef COWSHED_PYTHON_SITES_H
#define COWSHED_PYTHON_SITES_H

#include "python/_cowshed/base.h"

/* Around a call that clones or copies, with the GIL and without an exception: counts it for the
 * line of the program that made it. site_begin() returns 0 if sites are not counted. */
uint64_t site_begin(void);
void site_count(uint64_t begin, uint64_t shared, uint64_t copied);

#endif
