#!/bin/bash
# SPDX-License-Identifier: MIT
#
# share.sh: lets SPIN try every order of the steps of share.pml
#
# First the protocol as it is, in a few small instances, without an error; then
# each protection taken away, which must give one: else the model says nothing.
# spin.sh says what it needs and which variables it reads.
set -u
MODEL=share
PAN=-E # a killed process stops for good: such ends are no errors
MEMLIM=${MEMLIM:-6000}
. "$(dirname "$0")/spin.sh"

none="-DSENDS=0 -DKILLS=0"
travel="-DTURNS=2 -DSENDS=1 -DKILLS=1"
leave="-DALL_HOLD -DTURNS=1 -DROWS=3"
reuse="-DALL_HOLD -DTURNS=2 -DROWS=2 $none"

try travel right $travel
try travel-calm right -DTURNS=3 -DSENDS=1 -DKILLS=0 -DROWS=3
try leave right $leave -DMEMBERS=2 -DSENDS=0 -DKILLS=1
try leave-ownerless right $leave -DOWNERLESS $none
try leave-stopped right $leave -DSTOPS $none
try reuse right $reuse
try newcomer right -DALL_HOLD -DNEWCOMER -DTURNS=1 -DSENDS=0 -DKILLS=1 -DROWS=2
try fork right -DFORK=0 -DMEMBERS=2 -DALL_HOLD -DTURNS=2 -DROWS=3 -DSENDS=0 -DKILLS=1

try no-moves wrong $travel -DNO_MOVES
try clear-before-set wrong $travel -DCLEAR_BEFORE_SET
try no-leaving wrong $leave $none -DOWNERLESS -DNO_LEAVING
try no-wait wrong $leave $none -DOWNERLESS -DNO_WAIT
try no-second-look wrong $leave $none -DOWNERLESS -DNO_SECOND_LOOK
try clear-before-punch wrong $reuse -DCLEAR_BEFORE_PUNCH
try reuse-while-followed wrong $reuse -DREUSE_FOLLOWED
try blind-to-own-bit wrong -DTURNS=4 -DSENDS=2 -DKILLS=0 -DPOLL_OWN
try no-epoch wrong -DALL_HOLD -DNEWCOMER -DTURNS=1 -DSENDS=0 -DKILLS=1 -DNO_EPOCH
try no-sweep wrong $travel -DALL_HOLD -DNO_SWEEP
try no-death wrong $leave -DSENDS=0 -DKILLS=1 -DNO_DEATH
exit $bad
