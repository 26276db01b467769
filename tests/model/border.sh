#!/bin/bash
# SPDX-License-Identifier: MIT
#
# border.sh: lets SPIN try every order of the steps of border.pml
#
# First the protocol as it is, in a few small instances, without an error; then
# each protection taken away, which must give one: else the model says nothing.
# LONG=1 adds larger instances, of 5 to 13 million states each.
# spin.sh says what it needs and which variables it reads.
set -u
MODEL=border
PAN=-E # a killed process stops for good: such ends are no errors
STEPS=200000
OPT=-O0 # to compile takes longer than most searches
. "$(dirname "$0")/spin.sh"

two="-DPROCS=2"
three="-DTURNS=1 -DPARENT_TURNS=3"
plain="-DFREES=0 -DDROPS=0 -DCOPIES=0" # forks, writes in place, strangers
old="-DTURNS=1 -DDROPS=0 -DKILLS=0 -DOLD_BYTES"

try two right $two
try two-fine right $two -DFINE -DKILLS=2
try no-slot right $two -DSLOTS=1
# The parent forks, and writes, between any two steps of a child that leaves.
try siblings right $plain $three
try memory right $three -DDROPS=0 -DFORKS=1 -DLEAVES=6
# The child of a child, and the child of a stranger.
try grandchild right -DTURNS=2 -DPARENT_TURNS=1 -DCOPIES=0 -DDROPS=0
try two-files right $two $plain -DFILES=2 -DTURNS=3
if [ -n "${LONG:-}" ]; then
	OPT=-O2
	try long-three right -DTURNS=2
	try long-siblings right $plain -DTURNS=2 -DPARENT_TURNS=4
	try long-four right $plain -DPROCS=4 -DPARENT_TURNS=3 -DTURNS=2 -DFORKS=3 -DWRITES=1 -DKILLS=0
	try long-memory right $three
	try long-warm right -DTURNS=1 -DPARENT_TURNS=4 -DDROPS=0 -DCOPIES=0
	try long-two-files right $two -DFILES=2 -DTURNS=3
	try long-extents right $three -DEXTENTS=2 -DCOPIES=0
	try long-no-slot right -DTURNS=2 -DSLOTS=2
	try long-grandchild right -DTURNS=2 -DPARENT_TURNS=3 -DCOPIES=0 -DDROPS=0 -DKILLS=0
	try long-mark-in-word right -DTURNS=2 -DMARK_IN_WORD
	try long-copies-out right $old -DPARENT_TURNS=4 -DPUNCH_ALONE -DCOPIES_OUT
	OPT=-O0
fi
# Other ways that hold, too.
try fails right $two -DDROPS=0 -DFAILS
try mark-in-word right $two -DMARK_IN_WORD
try lifeline-after-mark right $two -DLIFELINE_AFTER_MARK
try splice-marks right $two -DTURNS=3 -DCOPIES=0 -DSPLICES=7 -DSPLICE_MARKS
try copies-out right $old -DPARENT_TURNS=3 -DPUNCH_ALONE -DCOPIES_OUT

# Writes in place.
try mark-late wrong -DTURNS=2 -DMARK_LATE
try mark-first wrong -DTURNS=2 -DMARK_FIRST
try no-mark wrong -DTURNS=2 -DNO_MARK
try extent-words wrong $two -DTURNS=3 -DEXTENTS=2 -DEXTENT_WORDS
try warm-reused wrong $two -DTURNS=3 -DWARM_REUSED
try open-targets wrong $two -DTURNS=2 -DEXTENTS=2 -DOPEN_TARGETS
try no-second-look wrong -DTURNS=2 -DNO_SECOND_LOOK
try no-kept-locks wrong -DPROCS=4 -DKILLS=2 -DFINE -DLEAVES=0 $plain -DWRITES=1 \
	-DFORKS=15 -DTURNS=3 -DNO_KEPT_LOCKS
# Giving back.
try no-lifeline wrong $two -DTURNS=3 -DNO_LIFELINE
try lifeline-first wrong $two -DTURNS=3 -DLIFELINE_FIRST
try lifeline-late wrong $two -DTURNS=3 -DLIFELINE_LATE
try limbo-of-maker wrong -DTURNS=3 -DLIMBO_OF_MAKER
# Leaving.
try keeps-marked wrong $two -DTURNS=3 -DKEEPS_MARKED
try slot-with-first wrong $two $plain -DFILES=2 -DTURNS=3 -DSLOT_WITH_FIRST
try no-lock wrong $two -DTURNS=2 -DNO_LOCK
try unlocked-early wrong $two -DTURNS=2 -DUNLOCKED_EARLY
try no-punch wrong $two -DTURNS=3 -DNO_PUNCH
try punch-if-given wrong $two -DTURNS=3 -DPUNCH_IF_GIVEN
try limbo-punched wrong -DTURNS=3 -DEXTENTS=2 -DKILLS=0 -DLIMBO_PUNCHED
# Outside the rules: pipes of honest processes, and old bytes that others still read.
try pipes wrong $two -DTURNS=2 -DSPLICES=7
try old-bytes wrong $old -DPARENT_TURNS=4
try old-bytes-punched wrong $old -DPARENT_TURNS=4 -DPUNCH_ALONE
exit $bad
