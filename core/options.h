/* SPDX-License-Identifier: MIT */
/*
 * Options that other libraries read
 */
#ifndef COW_CORE_OPTIONS_H
#define COW_CORE_OPTIONS_H

#include "core/base/option.h"

/* Is it an option of the engine or of the shim, with a value that is valid? -ENOENT, -EINVAL,
 * with a sentence. */
int cow__option_check(const struct cow__pair *p);

/* The option cuda-poison of cuda/. It may be set before libcowshed-cuda is
 * loaded, so it lies here. Atomic. */
extern bool cow__option_cuda_poison;

#endif
