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

turns_of 9 7

pair() { # BYTES PAIRS ON
	in_turns 'plain shim' printed "$bin/plain_pair" -s "$1" -n "$2" -r 1
	row "$1-bytes" ns pair_ns plain "$3" 1.15
}

n=20000000
quick && n=5000000
pair 64 $n ratio
pair 4K $((n / 4)) -
pair 100K 20000 -
pair 1M 20000 -
pair 64M 2000 -
