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
turns=${BENCH_ROUNDS:-5} size=1G
quick && turns=${BENCH_ROUNDS:-1} size=256M

once() { # SIDE SHIM OPTIONS ARGUMENTS...: appends to $tmp/SIDE.{ms,peak,first,later}
	side=$1 loaded=$2 options=$3
	shift 3
	"$bin/plain_measure" -w 1200M >/dev/null # each side finds the same memory
	COWSHED_OPTIONS=$options "$bin/plain_measure" -o "$tmp/line" -p "$loaded" -- \
		"$bin/plain_zeros" -s $size "$@" >"$tmp/out" || fail "plain_zeros failed ($side, $*)"
	field ms <"$tmp/out" >>"$tmp/$side.ms"
	field peak_kib <"$tmp/line" | awk '{ print $1 / 1024 }' >>"$tmp/$side.peak"
	field peak_by <"$tmp/line" >>"$tmp/by"
	field pause_us <"$tmp/out" >"$tmp/pauses"
	head -n 1 "$tmp/pauses" >>"$tmp/$side.first"
	sed 1d "$tmp/pauses" >"$tmp/rest"
	median "$tmp/rest" >>"$tmp/$side.later"
}

all() { # ARGUMENTS...
	rm -f "$tmp"/*.ms "$tmp"/*.peak "$tmp"/*.first "$tmp"/*.later
	: >"$tmp/by"
	turn=0
	while [ $turn -lt "$turns" ]; do
		once glibc '' '' "$@"
		once cowshed "$shim" '' "$@"
		once memfd "$shim" backing=memfd "$@"
		turn=$((turn + 1))
	done
}

# figure CASE UNIT KIND ON BAR: beside glibc, and beside memfds without a bar
figure() {
	report zeros "$1" "$2" "$tmp/cowshed.$3" "$tmp/glibc.$3" "$4" "$5"
	report zeros "$1/memfd" "$2" "$tmp/cowshed.$3" "$tmp/memfd.$3" - -
}

all -r
figure read ms ms ratio 1.5
report zeros read/peak MiB "$tmp/cowshed.peak" "$tmp/memfd.peak" ours 64 "$(peak_by "$tmp/by")"
all -w 100
figure write ms ms ratio 1
all -w 10
figure write-10% ms ms ratio 1
all -r -w 100
figure read-then-write ms ms ratio 1.05
all -w 100 -f 6
figure fork/first us first - -
figure fork/later us later - -
