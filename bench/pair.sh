#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The cost of the shim for small requests: malloc(64) and free
#
# This script runs bench/plain_pair with and without the shim, in turns. Bar: at most 15 %
# slower. Other sizes are reported without a bar; the engine serves those from the
# shim's threshold on.
. "$(dirname "$0")/common.sh"
need "$bin/plain_pair" "$shim"

turns=${BENCH_ROUNDS:-9}
quick && turns=7

once() { # SIDE COMMAND...: appends to $tmp/SIDE
	once_side=$1
	shift
	"$@" >"$tmp/out" || fail "failed ($once_side): $*"
	field pair_ns <"$tmp/out" >>"$tmp/$once_side"
}

pair() { # BYTES PAIRS ON
	: >"$tmp/ours"
	: >"$tmp/rival"
	turn=0
	while [ $turn -lt "$turns" ]; do
		once rival "$bin/plain_pair" -s "$1" -n "$2" -r 1
		once ours env LD_PRELOAD="$shim" "$bin/plain_pair" -s "$1" \
			-n "$2" -r 1
		turn=$((turn + 1))
	done
	report pair "$1-bytes" ns "$tmp/ours" "$tmp/rival" "$3" 1.15
}

n=20000000
quick && n=5000000
pair 64 $n ratio
pair 4K $((n / 4)) -
pair 100K 20000 -
pair 1M 20000 -
pair 64M 2000 -
