#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Memory that is still charged after it was freed, after its owners were killed, and
# after frozen pages were rewritten
#
# This script runs bench/plain_memory with and without the shim; the head of that program
# describes the cases. Bar: within 8 MiB of the aim after at most five seconds.
. "$(dirname "$0")/common.sh"
need "$bin/plain_memory" "$shim"

kills=20
quick && kills=6
turns_of 3 1

once() { # SIDE
	set -- -n $kills
	[ "$side" != shim ] || set -- -p "$shim" "$@"
	"$bin/plain_memory" "$@" >"$tmp/out" || fail "plain_memory failed ($side)"
	field by <"$tmp/out" >>"$tmp/of/by"
	while read -r line; do
		name=$(echo "$line" | field case)
		echo "$line" | field over_mib | note "$side" "$name.over"
		echo "$line" | field settled_ms | note "$side" "$name.ms"
	done <"$tmp/out"
}

in_turns 'glibc shim' once
for name in $(field case <"$tmp/out"); do
	row "$name/left" MiB "$name.over" glibc ours 8
	[ "$name" = killed ] || report memory "$name/settled" ms "$tmp/of/shim.$name.ms" \
		"$tmp/of/glibc.$name.ms" ours 5000 "$(peak_by "$tmp/of/by")"
done
