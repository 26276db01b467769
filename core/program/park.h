/* SPDX-License-Identifier: MIT */
/*
 * Safe points and stops, for the shim: quiet/park.h and quiet/stop.h say what they are
 */
#ifndef COW_CORE_PROGRAM_PARK_H
#define COW_CORE_PROGRAM_PARK_H

#include "memfd/gate.h"
#include "quiet/floor.h"
#include "quiet/stop.h"

#endif
