#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The pause of fork() with 4 GiB in large blocks
#
# bench/plain_fork under glibc with 4 KiB pages, glibc with huge pages, and the
# shim, in turns. Bars: 20 times faster at the first fork and 300 times at the
# tenth, against 4 KiB pages. Huge pages and smaller blocks are reported.
. "$(dirname "$0")/common.sh"
need "$bin/plain_fork" "$bin/plain_measure" "$shim"

turns=${BENCH_ROUNDS:-7}
total=4G
if quick; then
	turns=${BENCH_ROUNDS:-3}
	total=512M
fi

# one SIDE ARGS...: appends to $tmp/SIDE.{first,tenth,later,fill}
one() {
	side=$1
	shift
	preload=
	[ "$side" = shim ] && preload=$shim
	tunables=
	[ "$side" = huge ] && tunables=$huge_pages
	"$bin/plain_measure" -w $total >/dev/null # the same memory for all
	env ${preload:+LD_PRELOAD="$preload"} \
		${tunables:+GLIBC_TUNABLES="$tunables"} "$bin/plain_fork" "$@" \
		>"$tmp/out" || fail "plain_fork failed ($side, $*)"
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
	turn=0
	while [ $turn -lt "$turns" ]; do
		one small -t $total -b "$1"
		one shim -t $total -b "$1"
		one huge -t $total -b "$1" -H
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

"$bin/plain_measure" -w 6G
all 64M speedup speedup
all 1M faster faster
