/* SPDX-License-Identifier: MIT */
/*
 * Options of this folder: a table for core/options.c
 */
#ifndef COW_CORE_MEMORY_OPTIONS_H
#define COW_CORE_MEMORY_OPTIONS_H

#include "core/base/option.h"

extern const struct cow__option cow__memory_options[];

#endif
