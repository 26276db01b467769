#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Lazy copies of large blocks, and their use afterwards
#
# This script runs bench/plain_copies under the shim with copies=auto and copies=lazy,
# against the shim alone, in turns. Each side has five processes. A process counts by
# the median of its cycles after the first four, in which auto learns. Bars for a copy
# that is read: it is made 5 times faster, the cycle's wall and CPU time are within 5 %,
# and so is the memory peak. Bar for a copy that is overwritten with auto: the cycle's
# wall and CPU time are within 5 %. run-cpu and peak are of the whole run.
. "$(dirname "$0")/common.sh"
unset BENCH_SIDES # all sides are ours (bench/pairs.sh)
copies=$lib/libcowshed-copies.so
need "$bin/plain_copies" "$bin/plain_measure" "$shim" "$copies"

turns_of 5 2
cycles=8 sizes='64M 1G'
quick && sizes=64M
with_copies="$shim $copies"

once() { # SIDE MODE SIZE
	libraries=$with_copies
	[ "$1" != plain ] || libraries=$shim
	COWSHED_OPTIONS=copies=${1#plain} "$bin/plain_measure" -o "$tmp/measured" -p "$libraries" -- \
		"$bin/plain_copies" -m "$2" -b "$3" -n $cycles >"$tmp/cycles" ||
		fail "plain_copies failed ($*)"
	sed 1,4d "$tmp/cycles" | cat - "$tmp/measured" >"$tmp/out"
	keep "$1"
}

# figure NAME UNIT FIGURE ON BAR: of $side against the shim alone
figure() {
	by=
	[ "$2" != KiB ] || by=$(peak_by "$tmp/of/by")
	report copies "$side/$mode-$size/$1" "$2" "$tmp/of/$side.$3" "$tmp/of/plain.$3" "$4" "$5" "$by"
}

warm 4G
for size in $sizes; do
	for mode in read overwrite percent source; do
		in_turns 'plain auto lazy' once $mode $size
		for side in auto lazy; do
			copying=faster whole=- peak=-
			[ $mode != read ] || copying=speedup peak=ratio whole=ratio
			[ $side$mode != autooverwrite ] || whole=ratio
			figure copy us copy_us $copying 5
			figure wall us wall_us $whole 1.05
			figure cpu us cpu_us $whole 1.05
			figure run-cpu ms cpu_ms - 0
			figure peak KiB peak_kib $peak 1.05
		done
	done
done
