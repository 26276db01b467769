#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A fork storm (tests/stress/fork_storm.c) under the shim, for a few seconds at
# each threshold. For `make stress` with other options, too, in turns:
#
#   STRESS=seconds   in all; 0: for ever
#   SEED=number      of the first turn; else the time
. "$(dirname "$0")/lib.sh"

storm=$BUILD/tests/stress/fork_storm
seed=${SEED:-$(date +%s)}

# turn OPTIONS SECONDS PROCESSES LARGEST
turn() {
	local name="fork storm: $1, at most $3 processes, blocks up to $4, seed $seed"

	timeout -k 5 $((limit + $2)) env LD_PRELOAD="$shim" \
		COWSHED_OPTIONS="$1" "$storm" "$2" "$seed" "$3" "$4" \
		>"$work/out" 2>"$work/err" </dev/null
	if [ $? -eq 0 ]; then
		pass "$name"
		[ -z "${STRESS:-}" ] || sed 's/^/    /' "$work/out"
	else
		fail "$name" "$work/out" "$work/err"
	fi
	seed=$((seed + 1))
}

# parks OPTIONS SECONDS [BUSY]: threads that park and wake while memory is moved; BUSY never park
parks() {
	if timeout -k 5 $((limit + $2)) env LD_PRELOAD="$shim" COWSHED_OPTIONS="$1" \
		"$BUILD/tests/programs/park_storm" "$2" "${3:-0}" >"$work/out" 2>"$work/err" \
		</dev/null; then
		pass "park storm: $1"
	else
		fail "park storm: $1" "$work/out" "$work/err"
	fi
}

if [ -z "${STRESS:-}" ]; then
	turn threshold=4096 5 80 100000
	turn threshold=64K 5 30 1000000
	turn threshold=1M,mmap=1M 5 20 8000000
	parks threshold=64K 5
	parks threshold=64K,quiet=signal 5 2
	finish
fi

until=$((SECONDS + STRESS))
while [ "$failures" -eq 0 ] &&
	{ [ "$STRESS" -eq 0 ] || [ "$SECONDS" -lt "$until" ]; }; do
	turn threshold=4096 20 100 100000
	turn threshold=4096,backing=memfd 20 40 400000
	turn threshold=64K 20 30 3000000
	turn threshold=64K,backing=memfd,helper=no 20 80 1000000
	turn threshold=64K,backing=anon 20 30 1000000
	turn threshold=4096,backing=auto,helper=no 20 20 2000000
	turn threshold=4096,decay=1,warm=1M 20 40 1000000
	turn threshold=1M 20 20 8000000
	turn threshold=4096,mmap=64K 20 100 400000
	turn threshold=64K,mmap=64K 20 30 3000000
	turn threshold=1M,mmap=1M 20 20 8000000
	turn threshold=4096,mmap=64K,quiet=signal 20 60 400000
	turn threshold=64K,quiet=signal 20 30 3000000
	turn threshold=1M,mmap=1M,quiet=signal 20 20 8000000
	parks threshold=4096 20
	parks threshold=64K,helper=no 20
	parks threshold=1M,mmap=1M 20
	parks threshold=64K,mmap=64K,quiet=signal 20 1
	parks threshold=64K,quiet=signal 20 2
	parks threshold=4096,quiet=signal,helper=no 20 1
done
finish
