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

turns=${BENCH_ROUNDS:-5} cycles=4
total=1G
block=64M
options= # of the shim
heap=    # of the rival with huge pages
modes='exit exec read'
odd='1536K 2500K 5M' # sizes of blocks
writes='0 1 1s 10 10s 100'
if quick; then
	turns=${BENCH_ROUNDS:-2}
	total=256M
	block=16M
	modes='exit read'
	odd=2500K
	writes='0 1 1s 100'
fi

# one SIDE FROM ARGS...: runs one process; appends the median of its cycles from FROM on
# to $tmp/SIDE.FIGURE, and its first cycle to $tmp/SIDE.first.FIGURE
one() {
	side=$1 from=$2
	wanted "$side" || return 0
	shift 2
	preload=
	[ "$side" = shim ] && preload=$shim
	tunables=
	[ "$side" = huge ] && tunables=$huge_pages$heap
	env ${preload:+LD_PRELOAD="$preload"} ${options:+COWSHED_OPTIONS="$options${BENCH_OPTIONS:+,$BENCH_OPTIONS}"} \
		${tunables:+GLIBC_TUNABLES="$tunables"} "$bin/plain_cycle" \
		-S $total -n $cycles "$@" >"$tmp/out" ||
		fail "plain_cycle failed ($side, $*)"
	for figure in wall_us cpu_us busy; do
		sed -n "s/^cycle=1 .*$figure=\([^ ]*\).*/\1/p" "$tmp/out" \
			>>"$tmp/$side.first.$figure"
		awk -v from="$from" -v name="$figure" '{
			split($1, c, "=")
			for (i = 2; i <= NF; i++)
				if (c[2] >= from &&
				    index($i, name "=") == 1)
					print substr($i, length(name) + 2)
		}' "$tmp/out" >"$tmp/cycles"
		median "$tmp/cycles" >>"$tmp/$side.$figure"
	done
}

# all NAME FROM ON ARGS...: runs all sides in turns, and reports them as NAME
all() {
	name=$1 from=$2 on=$3
	shift 3
	# shellcheck disable=SC2254
	case $name in ${CYCLE_ONLY:-*}) ;; *) return ;; esac
	rm -f "$tmp"/small.* "$tmp"/huge.* "$tmp"/shim.*
	turn=0
	while [ $turn -lt "$turns" ]; do
		one small "$from" "$@"
		one shim "$from" "$@"
		one huge "$from" "$@" -H
		turn=$((turn + 1))
	done
	for what in wall_us cpu_us; do
		case $name$what in busy*cpu_us) continue ;; esac
		report cycle "$name/${what%_us}" us "$tmp/shim.$what" \
			"$(better "$tmp/small.$what" "$tmp/huge.$what")" \
			"$on" 1.05
	done
	report cycle "$name/first" us "$tmp/shim.first.wall_us" \
		"$(better "$tmp/small.first.wall_us" \
			"$tmp/huge.first.wall_us")" - 0
	case $name in busy*) ;; *) return ;; esac
	# The pages that the writers wrote, against the rival under which they
	# write most.
	report cycle "$name/writers" pages/ms "$tmp/shim.busy" \
		"$(better "$tmp/small.busy" "$tmp/huge.busy" most)" - 0
}

"$bin/plain_measure" -w 4G
for threads in 0 4; do
	for mode in $modes; do
		for write in $writes; do
			pool=one-thread
			[ $threads = 0 ] || pool=idle-pool
			case $write in
			*s) set -- -w "${write%s}" -s ;;
			*) set -- -w "$write" ;;
			esac
			case $write in
			*s) name="$mode-${write%s}%-scattered-$pool" ;;
			*) name="$mode-$write%-$pool" ;;
			esac
			all "$name" 2 ratio -b $block -m "$mode" \
				-t $threads "$@"
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
	all "while-child-lives-$write%" 2 - -b $block -m read -c -w $write
	all "busy-old-blocks-$write%" 3 - -b $block -m read -B 1 -w $write
	options=quiet=signal
	all "busy-old-blocks-$write%-stopped" 3 ratio -b $block -m read -B 1 -w $write
	options=
	all "busy-renew-25%-$write%" 3 - -b $block -m read -B 1 -w $write \
		-R 25
	all "busy-new-blocks-$write%" 3 ratio -b $block -m read -B 1 \
		-w $write -R 100
done
quick || all "busy-new-blocks-of-16MiB-100%" 3 ratio -b 16M -m read -B 1 \
	-w 100 -R 100
