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

turns_of 9 3

once() { # SIDE [-t]
	shift
	run_as "$side" "$bin/plain_wrappers" "$@"
	[ "$side" != shim ] || cp "$tmp/out" "$tmp/calls"
	while read -r line; do
		name=$(echo "$line" | field call)
		for figure in with own extra; do
			echo "$line" | field ${figure}_ns | note "$side" "$name.$figure"
		done
	done <"$tmp/out"
}

for threads in one-thread threads; do
	set -- -t
	[ $threads = threads ] || shift
	in_turns 'plain shim' once "$@"
	for name in $(field call <"$tmp/calls"); do
		on=ours
		grep -q "^call=$name wrapped=1 " "$tmp/calls" || on=-
		row "$name/$threads/more" ns "$name.extra" - $on 5
		row "$name/$threads" ns "$name.with" plain - 0
	done
done
