#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The pause of fork() with much memory in large blocks
#
# This script runs bench/plain_fork under glibc with 4 KiB pages, glibc with huge pages,
# and the shim, in turns. Bars, with 4 GiB against 4 KiB pages: 20 times faster at the
# first fork, and 300 times at the tenth. Huge pages, other sizes and smaller blocks are
# reported without a bar. So are the pause and the whole cycle with 1 GiB of which a share
# is written between forks (bench/plain_cycle); a process counts by its median there.
# So are forks of a process of which the shim serves nothing: the pause, and until the child
# has gone. FORK_ONLY names some of "256M 1G 4G written small".
#
# glibc maps each block of 1 MiB by itself, and no huge page fits into such a mapping.
# So the rival with huge pages has a higher mmap_threshold there, and its blocks lie in
# the heap. A round of that rival counts only if nine tenths of its memory are in huge
# pages.
. "$(dirname "$0")/common.sh"
need "$bin/plain_fork" "$bin/plain_measure" "$shim"

turns=${BENCH_ROUNDS:-7}
written='0 0.1 1 10 30 100'
written_total=1G
parts='256M 1G 4G written small'
if quick; then
	turns=${BENCH_ROUNDS:-3}
	parts='128M 512M written small'
	written='0 1 100'
	written_total=256M
fi

# run_as SIDE COMMAND...: runs the command under the allocator of SIDE, into $tmp/out
run_as() {
	preload='' tunables=''
	[ "$1" != shim ] || preload=$shim
	[ "$1" != huge ] || tunables=$huge_pages${heap:-}
	shift
	env ${preload:+LD_PRELOAD="$preload"} \
		${tunables:+GLIBC_TUNABLES="$tunables"} "$@" >"$tmp/out" ||
		fail "failed: $*"
}

# one SIDE ARGS...: runs one process; appends to $tmp/SIDE.{first,tenth,gone,fill}
one() {
	side=$1
	wanted "$side" || return 0
	shift
	"$bin/plain_measure" -w "$total" >/dev/null # each side finds the same memory
	run_as "$side" "$bin/plain_fork" "$@"
	if [ $side = huge ] && ! awk -v mib="$(field huge_mib <"$tmp/out")" \
		-v total="$total" 'BEGIN {
		exit mib < 0.9 * total * (total ~ /G/ ? 1024 : 1) }'; then
		echo "  fork: the rival with huge pages has only" \
			"$(field huge_mib <"$tmp/out") MiB of $total in them"
		return
	fi
	sed -n 's/^fork=1 .*pause_us=\([^ ]*\).*/\1/p' "$tmp/out" \
		>>"$tmp/$side.first"
	sed -n 's/^fork=10 .*pause_us=\([^ ]*\).*/\1/p' "$tmp/out" \
		>>"$tmp/$side.tenth"
	sed -n 's/^fork=10 .*gone_us=\([^ ]*\).*/\1/p' "$tmp/out" \
		>>"$tmp/$side.gone"
	field fill_ms <"$tmp/out" >>"$tmp/$side.fill"
}

all() { # BLOCK ON-FOR-FIRST ON-FOR-TENTH
	rm -f "$tmp"/small.* "$tmp"/huge.* "$tmp"/shim.*
	turn=0 heap=
	[ "$1" != 1M ] || heap=:glibc.malloc.mmap_threshold=33554432
	while [ $turn -lt "$turns" ]; do
		one small -t "$total" -b "$1"
		one shim -t "$total" -b "$1"
		one huge -t "$total" -b "$1" -H
		turn=$((turn + 1))
	done
	name=$total/${1}iB-blocks
	report fork "first/$name" us "$tmp/shim.first" "$tmp/small.first" \
		"$2" 20
	report fork "tenth/$name" us "$tmp/shim.tenth" "$tmp/small.tenth" \
		"$3" 300
	report fork "first/huge/$name" us "$tmp/shim.first" \
		"$tmp/huge.first" faster 0
	report fork "tenth/huge/$name" us "$tmp/shim.tenth" \
		"$tmp/huge.tenth" faster 0
	report fork "tenth-until-gone/$name" us "$tmp/shim.gone" \
		"$tmp/small.gone" faster 0
	report fork "fill/$name" ms "$tmp/shim.fill" "$tmp/small.fill" \
		faster 0
	report fork "fill/huge/$name" ms "$tmp/shim.fill" "$tmp/huge.fill" \
		faster 0
}

nothing_served() {
	rm -f "$tmp"/small.* "$tmp"/huge.* "$tmp"/shim.*
	turn=0 total=1M
	while [ $turn -lt "$turns" ]; do
		one small -t $total -b 64K -n 10
		one shim -t $total -b 64K -n 10
		turn=$((turn + 1))
	done
	report fork tenth/nothing-served us "$tmp/shim.tenth" "$tmp/small.tenth" - 0
	report fork tenth-until-gone/nothing-served us "$tmp/shim.gone" "$tmp/small.gone" - 0
}

# The pauses and cycles from the second on: before each of them pages were written.
one_written() { # SIDE ARGS...
	side=$1
	wanted "$side" || return 0
	shift
	run_as "$side" "$bin/plain_cycle" -S $written_total -b 64M -n 5 "$@"
	for figure in pause wall; do
		grep -v '^cycle=1 ' "$tmp/out" | field ${figure}_us >"$tmp/cycles"
		median "$tmp/cycles" >>"$tmp/$side.$figure"
	done
}

between_forks() { # PERCENT [-s]
	rm -f "$tmp"/small.* "$tmp"/huge.* "$tmp"/shim.*
	turn=0 heap=
	while [ $turn -lt "$turns" ]; do
		one_written small -w "$@"
		one_written shim -w "$@"
		one_written huge -w "$@" -H
		turn=$((turn + 1))
	done
	name=$written_total/$1%
	[ $# = 1 ] || name=$name-scattered
	for what in pause wall; do
		report fork "written-$what/$name" us "$tmp/shim.$what" \
			"$tmp/small.$what" faster 0
		report fork "written-$what/huge/$name" us "$tmp/shim.$what" \
			"$tmp/huge.$what" faster 0
	done
}

"$bin/plain_measure" -w 6G
for total in ${FORK_ONLY:-$parts}; do
	case $total in
	written)
		for share in $written; do
			between_forks "$share"
		done
		for share in 1 10; do
			between_forks "$share" -s
		done ;;
	small) nothing_served ;;
	4G)
		all 64M speedup speedup
		all 1M faster faster ;;
	*)
		all 64M faster faster ;;
	esac
done
