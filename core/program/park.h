/* SPDX-License-Identifier: MIT */
/*
 * Safe points, for the shim: memfd/park.h says what they are
 */
#ifndef COW_CORE_PROGRAM_PARK_H
#define COW_CORE_PROGRAM_PARK_H

#include "memfd/park.h"

#endif
