#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Beside a preloaded library that defines names of libc: a clock, functions for memory. The engine
# must not call them: its helper has no thread-local data, and needs a clock that runs.
. "${BASH_SOURCE%/*}/lib.sh"

also=decay=50

# beside NAME LIBRARY: in both orders
beside() {
	local order threshold
	alone=$2
	plainly "$programs/gives_back" >"$work/plain.out" 2>"$work/plain.err"
	plain=$?
	for order in "$shim:$alone" "$alone:$shim"; do
		preload=$order
		for threshold in $thresholds; do
			under "$threshold" "$programs/gives_back" >"$work/shim.out" 2>"$work/shim.err"
			got=$?
			if [ "$order" = "$alone:$shim" ]; then
				same "$1 first, at $threshold"
			else
				same "$1 second, at $threshold"
			fi
		done
	done
}

if ${CC:-gcc} -O1 -fno-builtin -fno-stack-protector -ftls-model=global-dynamic -fPIC -shared \
	-o "$work/foreign.so" tests/preload/foreign.c >"$work/out" 2>&1; then
	beside 'a foreign clock and memory' "$work/foreign.so"
else
	fail 'the foreign library is built' "$work/out"
fi

faketime=$(find /usr/lib -name libfaketime.so.1 2>/dev/null | head -n 1)
if [ -n "$faketime" ]; then
	export FAKETIME='2020-01-01 00:00:00' # it stands still
	beside 'libfaketime' "$faketime"
else
	skip 'libfaketime is not installed'
fi

finish
