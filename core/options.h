/* SPDX-License-Identifier: MIT */
/*
 * Options that other libraries read
 */
#ifndef COW_CORE_OPTIONS_H
#define COW_CORE_OPTIONS_H

#include <stdbool.h>

/* The option cuda-poison of cuda/. It may be set before libcowshed-cuda is
 * loaded, so it lies here. Atomic. */
extern bool cow__option_cuda_poison;

#endif
