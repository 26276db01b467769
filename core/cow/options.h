/* SPDX-License-Identifier: MIT */
/*
 * Options of this folder: a table for core/options.c
 */
#ifndef COW_CORE_COW_OPTIONS_H
#define COW_CORE_COW_OPTIONS_H

#include "core/base/option.h"

extern const struct cow__option cow__cow_options[];

#endif
