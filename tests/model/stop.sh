#!/bin/bash
# SPDX-License-Identifier: MIT
#
# stop.sh: lets SPIN try every order of the steps of stop.pml
#
# First the stop as it is, in a few small instances, without an error; then each
# protection taken away, which must give one: else the model says nothing.
# spin.sh says what it needs and which variables it reads.
set -u
MODEL=stop
PAN=
STEPS=3000000
. "$(dirname "$0")/spin.sh"

try two right
try two-masked right -DMASKS
try fences right -DTHREADS=1 -DFENCES
try three-provers right -DTHREADS=1 -DPROVERS=3 -DMASKS

try park-once wrong -DPARK_ONCE
try no-take-back wrong -DNO_TAKE_BACK
try floor-first wrong -DFLOOR_FIRST
try no-membarrier wrong -DNO_MEMBARRIER
try park-unfenced wrong -DFENCES -DPARK_UNFENCED
try leave-unfenced wrong -DFENCES -DLEAVE_UNFENCED
try no-wait wrong -DNO_WAIT
try no-numbers wrong -DNO_NUMBERS
try stay-once wrong -DSTAY_ONCE
try no-wake wrong -DNO_WAKE
exit $bad
