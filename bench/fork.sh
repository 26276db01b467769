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
# has gone, and forks of a process with 1 000 and 10 000 sockets. FORK_ONLY names some of
# "256M 1G 4G written small sockets".
#
# glibc maps each block of 1 MiB by itself, and no huge page fits into such a mapping.
# So the rival with huge pages has a higher mmap_threshold there, and its blocks lie in
# the heap. A round of that rival counts only if nine tenths of its memory are in huge
# pages.
. "$(dirname "$0")/common.sh"
need "$bin/plain_fork" "$bin/plain_measure" "$shim"

turns_of 7 3
written='0 0.1 1 10 30 100'
written_total=1G
parts='256M 1G 4G written small sockets'
if quick; then
	parts='128M 512M written small'
	written='0 1 100'
	written_total=256M
fi

once() { # SIDE TOTAL BLOCK: the figures are fill, and of forks first, tenth, gone
	heap=
	[ "$3" != 1M ] || heap=:glibc.malloc.mmap_threshold=33554432
	warm "$2"
	run_as "$1" "$bin/plain_fork" -t "$2" -b "$3"
	if [ "$1" = huge ] && ! awk -v mib="$(field huge_mib <"$tmp/out")" \
		-v total="$2" 'BEGIN {
		exit mib < 0.9 * total * (total ~ /G/ ? 1024 : 1) }'; then
		echo "  fork: the rival with huge pages has only" \
			"$(field huge_mib <"$tmp/out") MiB of $2 in them"
		return
	fi
	grep '^fork=1 ' "$tmp/out" | field pause_us | note "$1" first
	grep '^fork=10 ' "$tmp/out" | field pause_us | note "$1" tenth
	grep '^fork=10 ' "$tmp/out" | field gone_us | note "$1" gone
	field fill_ms <"$tmp/out" | note "$1" fill
}

all() { # BLOCK ON-FOR-FIRST ON-FOR-TENTH
	in_turns 'small shim huge' once "$total" "$1"
	name=$total/${1}iB-blocks
	row "first/$name" us first small "$2" 20
	row "tenth/$name" us tenth small "$3" 300
	row "first/huge/$name" us first huge faster 0
	row "tenth/huge/$name" us tenth huge faster 0
	row "tenth-until-gone/$name" us gone small faster 0
	row "fill/$name" ms fill small faster 0
	row "fill/huge/$name" ms fill huge faster 0
}

nothing_served() {
	in_turns 'small shim' once 1M 64K
	row tenth/nothing-served us tenth small - 0
	row tenth-until-gone/nothing-served us gone small - 0
}

with_sockets() { # SIDE SOCKETS
	run_as "$1" "$bin/plain_fork" -t 64M -d "$2"
	grep '^fork=10 ' "$tmp/out" | field pause_us | note "$1" tenth
}

beside_sockets() {
	for sockets in 1000 10000; do
		in_turns 'small shim' with_sockets $sockets
		row "tenth/$sockets-sockets" us tenth small - 0
	done
}

# The pauses and cycles from the second on: before each of them pages were written.
one_written() { # SIDE ARGS...
	shift
	heap=
	run_as "$side" "$bin/plain_cycle" -S $written_total -b 64M -n 5 "$@"
	for figure in pause wall; do
		grep -v '^cycle=1 ' "$tmp/out" | field ${figure}_us | note "$side" $figure
	done
}

between_forks() { # PERCENT [-s]
	in_turns 'small shim huge' one_written -w "$@"
	name=$written_total/$1%
	[ $# = 1 ] || name=$name-scattered
	for what in pause wall; do
		row "written-$what/$name" us $what small faster 0
		row "written-$what/huge/$name" us $what huge faster 0
	done
}

warm 6G
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
	sockets) beside_sockets ;;
	4G)
		all 64M speedup speedup
		all 1M faster faster ;;
	*)
		all 64M faster faster ;;
	esac
done
