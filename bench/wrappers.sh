#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The cost of the blocking calls that the shim wraps
#
# This script runs bench/plain_wrappers under the shim: each call against the C library's
# own in the same process, with one thread and beside a thread that sleeps. Bar: at most
# 5 ns more a call that is wrapped. Calls that are not have no bar, and show what the
# clock can tell. A round is the median of a process. The calls of a process without the
# shim are reported without a bar: where the shim has its helper, the process has a
# second thread, and the C library's own calls take longer.
. "$(dirname "$0")/common.sh"
need "$bin/plain_wrappers" "$shim"

turns=${BENCH_ROUNDS:-9}
quick && turns=3

once() { # SIDE PRELOAD ARGS...
	once_side=$1
	preload=$2
	shift 2
	env ${preload:+LD_PRELOAD="$preload"} "$bin/plain_wrappers" "$@" \
		>"$tmp/out" || fail "plain_wrappers failed ($once_side)"
	while read -r line; do
		name=$(echo "$line" | field call)
		for figure in with own extra; do
			echo "$line" | field ${figure}_ns \
				>>"$tmp/$once_side.$name.$figure"
		done
	done <"$tmp/out"
}

turn=0
while [ $turn -lt "$turns" ]; do
	once plain ''
	once shim "$shim"
	once plain-t '' -t
	once shim-t "$shim" -t
	turn=$((turn + 1))
done
for name in $(field call <"$tmp/out"); do
	on=ours
	grep -q "^call=$name wrapped=1 " "$tmp/out" || on=-
	for how in '' -t; do
		threads=one-thread
		[ -z "$how" ] || threads=threads
		report wrappers "$name/$threads/more" ns "$tmp/shim$how.$name.extra" \
			- $on 5
		report wrappers "$name/$threads" ns "$tmp/shim$how.$name.with" \
			"$tmp/plain$how.$name.with" - 0
	done
done
