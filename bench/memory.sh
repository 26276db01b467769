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
for turn in 1 2 3; do
	[ $turn -gt 1 ] && quick && break
	"$bin/plain_memory" -n $kills >>"$tmp/glibc" ||
		fail 'plain_memory failed without the shim'
	"$bin/plain_memory" -p "$shim" -n $kills >>"$tmp/shim" ||
		fail 'plain_memory failed under the shim'
done
for what in freed freed-busy shadow orphan-rewrites orphan-works \
	orphan-frees orphan-silent killed; do
	for side in shim glibc; do
		grep "^case=$what " "$tmp/$side" >"$tmp/lines"
		field over_mib <"$tmp/lines" >"$tmp/$side.over"
		field settled_ms <"$tmp/lines" >"$tmp/$side.ms"
		field by <"$tmp/lines" >"$tmp/$side.by"
	done
	by=$(peak_by "$tmp/shim.by" "$tmp/glibc.by")
	report memory "$what/left" MiB "$tmp/shim.over" "$tmp/glibc.over" \
		ours 8 "$by"
	[ $what = killed ] || report memory "$what/settled" ms \
		"$tmp/shim.ms" "$tmp/glibc.ms" ours 5000 "$by"
done
