#!/bin/bash
# SPDX-License-Identifier: MIT
#
# park.sh: lets SPIN try every order of the steps of park.pml
#
# First the handshake as it is, in a few small instances, without an error; then
# each protection taken away, which must give one: else the model says nothing.
# spin.sh says what it needs and which variables it reads.
set -u
MODEL=park
PAN=
STEPS=3000000
. "$(dirname "$0")/spin.sh"

one="-DTHREADS=1 -DDEPTH=1"
born="-DTHREADS=3 -DBIRTH"
raw="-DFUTEX -DTHREADS=3 -DNO_CALLS"

try late-writes right -DLATE_WRITES
try late-writes-fences right -DLATE_WRITES -DFENCES
try three right -DTHREADS=3
try signals right -DDEPTH=1
try signals-nested right -DTHREADS=1 -DDEPTH=2
try program-proves right -DASKS -DDEPTH=1
try birth right $born
try cancel right -DCANCEL -DDEPTH=1 -DSIGNALED=2
try cancel-three right -DCANCEL -DTHREADS=3
try cancel-without-list right -DCANCEL -DLIST_FREE -DFLAGS_LAST
try vfork right -DVFORK -DDEPTH=1
try vfork-nested right -DVFORK -DTHREADS=1 -DDEPTH=2
try fences right -DFENCES -DDEPTH=1
try fences-nested right -DFENCES -DTHREADS=1 -DDEPTH=2
try raw-handlers right -DRAW_HANDLER -DDEPTH=1
try futex right -DFUTEX -DDEPTH=1
try futex-three right $raw
try futex-birth right $raw -DBIRTH
try futex-birth-behind right $raw -DBIRTH -DBORN=0
try waits-unparked right -DWAITS_UNPARKED -DDEPTH=1
try waiters-bit right -DWAITERS_BIT -DDEPTH=1
try waiters-bit-vfork right -DWAITERS_BIT -DVFORK -DDEPTH=1

# The handshake.
try no-membarrier wrong -DNO_MEMBARRIER
try leave-blind wrong -DLEAVE_BLIND
try relaxed-enter wrong -DLATE_WRITES -DRELAXED_ENTER
try no-ranges wrong -DNO_RANGES
try stacks-moved wrong -DSTACKS_MOVED
try no-wake wrong -DNO_WAKE
try no-mutex wrong -DNO_MUTEX -DASKS
try count-first wrong $born -DCOUNT_FIRST
# Signals.
try no-gate wrong $one -DNO_GATE
try gate-blind wrong $one -DGATE_BLIND
try early-restore wrong $one -DEARLY_RESTORE
try longjmp-parked wrong $one -DLONGJMP_PARKED
try signals-in-prover wrong -DASKS -DUNMASKED -DDEPTH=1
try no-handlers wrong $one -DRAW_HANDLER -DNO_HANDLERS
try handlers-first wrong $one -DRAW_HANDLER -DHANDLERS_FIRST
try handlers-before-count wrong -DDEPTH=1 -DRAW_HANDLER -DHANDLERS_SECOND
try counted-waiters wrong $one -DCOUNTS_WAITERS
try counted-waiters-vfork wrong -DVFORK -DDEPTH=1 -DCOUNTS_WAITERS
# The gate's jump.
try jumps-beside-floor wrong $one -DJUMPS_BESIDE_FLOOR
try jumps-beside-fences wrong $one -DFENCES -DJUMPS_BESIDE_FENCES
try jumps-from-calls wrong $one -DJUMPS_FROM_CALLS
try jumps-from-vfork wrong $one -DVFORK -DJUMPS_FROM_VFORK
# Cancellation.
try no-cancelled wrong -DCANCEL -DNO_CANCELLED
try cancelled-unknown wrong -DCANCEL -DNO_UNKNOWN
try cancelled-with-scan wrong -DCANCEL -DLIST_FREE
# vfork().
try no-vfork-mark wrong -DVFORK -DNO_VFORK_MARK
try vfork-unknown wrong $one -DVFORK -DVFORK_UNKNOWN
try vfork-forgotten wrong $one -DVFORK -DVFORK_FORGOTTEN
try vfork-waits wrong $one -DVFORK -DVFORK_WAITS
# Without membarrier.
try fence-old wrong -DFENCES -DFENCE_OLD
try fence-in-frame wrong -DFENCES -DFENCE_IN_FRAME
try wait-unfenced wrong -DFENCES -DWAIT_UNFENCED
try gate-unfenced wrong $one -DFENCES -DGATE_UNFENCED
# Threads that sleep past safe points.
try one-look wrong -DFUTEX -DONE_LOOK
try two-looks wrong -DFUTEX -DTWO_LOOKS
try not-the-same wrong $raw -DNOT_THE_SAME
try may-wake wrong -DFUTEX -DNO_MAY_WAKE
exit $bad
