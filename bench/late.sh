#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Requests that come while memory heals: how late are they answered?
#
# bench/plain_late forks, rewrites all of its memory while the child lives, and then serves. It
# runs with and without the shim, in turns. No bar: each side has its own reason to be late. The
# kernel copies pages for plain Linux, and the library thaws what was copied.
. "$(dirname "$0")/common.sh"
need "$bin/plain_late" "$bin/plain_measure" "$shim"

turns=${BENCH_ROUNDS:-5} total=512M
quick && turns=${BENCH_ROUNDS:-2}

once() { # SIDE SHIM
	wanted "$1" || return 0
	"$bin/plain_measure" -w 2G >/dev/null # each side finds the same memory
	env ${2:+LD_PRELOAD="$2"} ${BENCH_OPTIONS:+COWSHED_OPTIONS="$BENCH_OPTIONS"} \
		"$bin/plain_late" -S $total >"$tmp/out" || fail "plain_late failed ($1)"
	for figure in half_us p99_us p999_us worst_us; do
		field $figure <"$tmp/out" >>"$tmp/$1.$figure"
	done
}

turn=0
while [ $turn -lt "$turns" ]; do
	once plain ''
	once shim "$shim"
	turn=$((turn + 1))
done
for figure in half p99 p999 worst; do
	report late $figure us "$tmp/shim.${figure}_us" "$tmp/plain.${figure}_us" ratio 0
done
