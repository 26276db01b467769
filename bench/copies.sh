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
copies=$lib/libcowshed-copies.so
need "$bin/plain_copies" "$bin/plain_measure" "$shim" "$copies"

turns=${BENCH_ROUNDS:-5} cycles=8 sizes='64M 1G'
if quick; then
	turns=${BENCH_ROUNDS:-2} sizes=64M
fi

# one SIDE MODE SIZE
one() {
	case $1 in
	plain) libraries=$shim ;;
	*) libraries="$shim $copies" ;;
	esac
	COWSHED_OPTIONS=copies=${1#plain} "$bin/plain_measure" -o "$tmp/run" \
		-p "$libraries" -- "$bin/plain_copies" -m "$2" -b "$3" \
		-n $cycles >"$tmp/out" || fail "plain_copies failed ($*)"
	for figure in copy_us wall_us cpu_us; do
		sed 1,4d "$tmp/out" | field $figure >"$tmp/cycles"
		median "$tmp/cycles" >>"$tmp/$1.$figure"
	done
	field cpu_ms <"$tmp/run" >>"$tmp/$1.cpu_ms"
	field peak_kib <"$tmp/run" >>"$tmp/$1.peak_kib"
	field peak_by <"$tmp/run" >>"$tmp/$1.peak_by"
}

"$bin/plain_measure" -w 4G
for size in $sizes; do
	for mode in read overwrite percent source; do
		rm -f "$tmp"/plain.* "$tmp"/auto.* "$tmp"/lazy.*
		turn=0
		while [ $turn -lt "$turns" ]; do
			for side in plain auto lazy; do
				one $side $mode $size
			done
			turn=$((turn + 1))
		done
		for side in auto lazy; do
			name=$side/$mode-$size copying=faster whole=- peak=-
			[ $mode != read ] || copying=speedup peak=ratio
			[ $side$mode != autooverwrite ] || whole=ratio
			[ $mode != read ] || whole=ratio
			report copies "$name/copy" us "$tmp/$side.copy_us" \
				"$tmp/plain.copy_us" $copying 5
			report copies "$name/wall" us "$tmp/$side.wall_us" \
				"$tmp/plain.wall_us" $whole 1.05
			report copies "$name/cpu" us "$tmp/$side.cpu_us" \
				"$tmp/plain.cpu_us" $whole 1.05
			report copies "$name/run-cpu" ms "$tmp/$side.cpu_ms" \
				"$tmp/plain.cpu_ms" - 0
			report copies "$name/peak" KiB "$tmp/$side.peak_kib" \
				"$tmp/plain.peak_kib" $peak 1.05 \
				"$(peak_by "$tmp/$side.peak_by" "$tmp/plain.peak_by")"
		done
	done
done
