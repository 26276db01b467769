/* SPDX-License-Identifier: MIT */
/*
 * Observers of memory: see cow_profiler_set() in cowshed.h
 *
 * The caller holds no lock.
 */
#ifndef COW_CORE_BASE_PROFILE_H
#define COW_CORE_BASE_PROFILE_H

#include "cowshed.h"

void cow__profile_device(const void *data, int64_t delta,
                         struct cow_device device);
void cow__profile_failure_device(size_t bytes, struct cow_device device);

/* The same for the CPU. */
void cow__profile(const void *data, int64_t delta);
void cow__profile_failure(size_t bytes);

#endif
