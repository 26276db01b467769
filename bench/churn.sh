#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Blocks of many sizes under the shim, glibc, jemalloc, mimalloc and tcmalloc
#
# bench/plain_churn makes, writes and frees blocks of random sizes, as `malloc-large` of
# mimalloc-bench does. All sides run in turns, each after a program that wrote 2 GiB: the
# host of a virtual machine takes back what was free for some seconds. Bars: wall time at
# most 0.8 of glibc's and 1.1 of the best rival's, peak of a memory cgroup at most 1.1 of
# glibc's.
. "$(dirname "$0")/common.sh"
need "$bin/plain_churn" "$bin/plain_measure" "$shim"

turns=${BENCH_ROUNDS:-5}
times=1000
quick && times=50

preload_of() {
	case $1 in
	ours) echo "$shim" ;;
	jemalloc | jemalloc-thp) library jemalloc ;;
	mimalloc) library mimalloc ;;
	tcmalloc) library tcmalloc_minimal ;;
	esac
}

sides='ours glibc'
for side in jemalloc jemalloc-thp mimalloc tcmalloc; do
	[ -z "$(preload_of $side)" ] || sides="$sides $side"
done

one() { # SIDE ARGUMENTS...: appends to $tmp/SIDE.wall, .cpu and .peak
	side=$1
	shift
	setting=A=
	[ "$side" != jemalloc-thp ] || setting=MALLOC_CONF=thp:always
	"$bin/plain_measure" -w 2G
	"$bin/plain_measure" -o "$tmp/line" -p "$(preload_of "$side")" -- \
		env "$setting" "$bin/plain_churn" "$@" >/dev/null ||
		fail "plain_churn failed ($side, $*)"
	field wall_ms <"$tmp/line" >>"$tmp/$side.wall"
	field cpu_ms <"$tmp/line" >>"$tmp/$side.cpu"
	field peak_kib <"$tmp/line" | awk '{ print $1 / 1024 }' >>"$tmp/$side.peak"
	field peak_by <"$tmp/line" >>"$tmp/by"
}

compare() { # CASE ARGUMENTS...
	case_name=$1
	shift
	rm -f "$tmp"/*.wall "$tmp"/*.cpu "$tmp"/*.peak "$tmp/by"
	turn=0
	while [ $turn -lt "$turns" ]; do
		for side in $sides; do
			one "$side" "$@"
		done
		# Each side comes after each other one.
		sides="${sides#* } ${sides%% *}"
		turn=$((turn + 1))
	done
	best=$tmp/glibc.wall
	for side in $sides; do
		[ "$side" = ours ] || best=$(better "$best" "$tmp/$side.wall")
	done
	report churn "$case_name/wall" ms "$tmp/ours.wall" "$tmp/glibc.wall" ratio 0.8
	report churn "$case_name/wall/best-rival" ms "$tmp/ours.wall" "$best" ratio 1.1
	report churn "$case_name/cpu" ms "$tmp/ours.cpu" "$tmp/glibc.cpu" - 0
	report churn "$case_name/peak" MiB "$tmp/ours.peak" "$tmp/glibc.peak" ratio 1.1 \
		"$(peak_by "$tmp/by")"
}

compare 5-25MiB -n $times
compare 5-25MiB-two-threads -t 2 -n $((times / 2))
compare 1-64MiB -l 1M -m 64M -n $((times / 2))
compare 1-64MiB-two-threads -l 1M -m 64M -t 2 -n $((times / 4))
