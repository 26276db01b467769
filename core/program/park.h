/* SPDX-License-Identifier: MIT */
/*
 * Safe points and stops, for the shim: memfd/park.h and memfd/stop.h say what they are
 */
#ifndef COW_CORE_PROGRAM_PARK_H
#define COW_CORE_PROGRAM_PARK_H

#include "memfd/park.h"
#include "memfd/stop.h"

#endif
