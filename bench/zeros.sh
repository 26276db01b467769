#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Large zeroed blocks: calloc of 1 GiB that is read, written, written in part, or forked
#
# bench/plain_zeros runs with glibc, with the shim, and with the shim and backing=memfd, in
# turns. A memfd has no page of zeros, so the last side shows what reading costs there, and
# what forks cost that are not of anonymous memory. Bars: reading takes at most 1.5 times
# glibc's time and 64 MiB, writing at most glibc's time.
. "$(dirname "$0")/common.sh"
need "$bin/plain_zeros" "$bin/plain_measure" "$shim"
turns_of 5 1
size=1G
quick && size=256M

once() { # SIDE ARGUMENTS...: its figures are also `first` and `later`, pauses of forks
	shift
	measured "$side" 1200M "$bin/plain_zeros" -s $size "$@"
	field pause_us <"$tmp/out" | head -n 1 | note "$side" first
	field pause_us <"$tmp/out" | sed 1d | note "$side" later
}

all() { # ARGUMENTS...
	in_turns 'glibc shim memfd' once "$@"
}

# figure CASE UNIT FIGURE ON BAR: beside glibc, and beside memfds without a bar
figure() {
	row "$1" "$2" "$3" glibc "$4" "$5"
	row "$1/memfd" "$2" "$3" memfd - 0
}

all -r
figure read ms ms ratio 1.5
row read/peak MiB peak_mib memfd ours 64
all -w 100
figure write ms ms ratio 1
all -w 10
figure write-10% ms ms ratio 1
all -r -w 100
figure read-then-write ms ms ratio 1.05
all -w 100 -f 6
figure fork/first us first - 0
figure fork/later us later - 0
