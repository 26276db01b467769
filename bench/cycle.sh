#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The whole cycle: fork, child, wait, rewrite
#
# This script runs bench/plain_cycle under glibc with 4 KiB pages, glibc with huge pages
# and the shim, in turns. Each side has five processes with four cycles. The cycles of a
# process are alike, but processes differ. So a process counts by one number, the median
# of its cycles. Bar from the second cycle on: at most 1.05 times the better of the two
# rivals, wall and CPU, for one thread and with idle pool threads. Bar from the third
# cycle on, with a busy writer when all blocks are new (-R 100), or old and the option
# quiet=signal is set (-stopped): the same, for wall time.
# Blocks of sizes that are no multiples of 2 MiB have the bar of the second cycle. No huge page fits
# into some of them. So the rival with huge pages has a higher mmap_threshold there, and its blocks
# lie in the heap.
# First cycles, other busy cases and parents that rewrite while the child lives are
# reported without a bar.
. "$(dirname "$0")/common.sh"
need "$bin/plain_cycle" "$bin/plain_measure" "$shim"

turns_of 5 2
total=1G
block=64M
modes='exit exec read'
odd='1536K 2500K 5M' # sizes of blocks
writes='0 1 1s 10 10s 100'
if quick; then
	total=256M
	block=16M
	modes='exit read'
	odd=2500K
	writes='0 1 1s 100'
fi

once() { # SIDE FROM ARGS...: the figures are those of cycles from FROM on, and of the first
	from=$2
	shift 2
	run_as "$side" "$bin/plain_cycle" -S $total -n 4 "$@"
	for figure in wall_us cpu_us busy; do
		sed -n 1p "$tmp/out" | field $figure | note "$side" first_$figure
		sed "1,$((from - 1))d" "$tmp/out" | field $figure | note "$side" $figure
	done
}

# all NAME FROM ON ARGS...: runs all sides in turns, and reports them as NAME
all() {
	name=$1 from=$2 on=$3
	shift 3
	# shellcheck disable=SC2254
	case $name in ${CYCLE_ONLY:-*}) ;; *) return ;; esac
	in_turns 'small shim huge' once "$from" "$@"
	row "$name/wall" us wall_us 'small huge' "$on" 1.05
	case $name in busy*) ;; *) row "$name/cpu" us cpu_us 'small huge' "$on" 1.05 ;; esac
	row "$name/first" us first_wall_us 'small huge' - 0
	# The pages that the writers wrote, against the rival under which they write most.
	case $name in busy*)
		row "$name/writers" pages/ms busy \
			"$(better "$tmp/of/small.busy" "$tmp/of/huge.busy" most)" - 0 ;;
	esac
}

warm 4G
for threads in 0 4; do
	pool=one-thread
	[ $threads = 0 ] || pool=idle-pool
	for mode in $modes; do
		for write in $writes; do
			percent=${write%s}
			set -- -w "$percent"
			name=$mode-$percent%
			[ "$write" = "$percent" ] || {
				set -- "$@" -s
				name=$name-scattered
			}
			all "$name-$pool" 2 ratio -b $block -m "$mode" -t $threads "$@"
		done
	done
done
heap=:glibc.malloc.mmap_threshold=33554432
for size in $odd; do
	all "exit-1%-scattered-blocks-of-${size}iB" 2 ratio -b "$size" -m exit -w 1 -s
	all "read-10%-blocks-of-${size}iB" 2 ratio -b "$size" -m read -w 10
done
heap=
for write in 1 100; do
	set -- -b $block -m read -w $write
	all "while-child-lives-$write%" 2 - "$@" -c
	all "busy-old-blocks-$write%" 3 - "$@" -B 1
	options=quiet=signal
	all "busy-old-blocks-$write%-stopped" 3 ratio "$@" -B 1
	options=
	all "busy-renew-25%-$write%" 3 - "$@" -B 1 -R 25
	all "busy-new-blocks-$write%" 3 ratio "$@" -B 1 -R 100
done
quick || all "busy-new-blocks-of-16MiB-100%" 3 ratio -b 16M -m read -B 1 -w 100 -R 100
