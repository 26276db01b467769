#!/bin/bash
# SPDX-License-Identifier: MIT
#
# soak.sh SECONDS: storms of shared storages with kills and storms of forks under the shim, in turns,
# and after each what shared memory the machine has. The least of the last three turns must not be
# more than that of the first three by 64 MiB: other programs have some, too, and not all the time.
# SEED=number: of the first turn. `make check` has half a minute of it (share_storm.sh, storm.sh).
set -u
cd "$(dirname "$0")/../.." || exit 1
seed=${SEED:-$(date +%s)}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

turn() {
	"$BUILD/tests/stress/share_storm" 60 "$seed" 12 && STRESS=60 SEED=$seed bash tests/preload/storm.sh
}

left=() until=$((SECONDS + $1))
while [ $SECONDS -lt $until ] || [ ${#left[@]} -lt 6 ]; do
	echo "turn $((${#left[@]} + 1)), seed $seed"
	if ! turn >"$log" 2>&1; then
		tail -n 40 "$log"
		echo "not ok soak: SEED=$seed"
		exit 1
	fi
	left+=("$(sed -n 's/^Shmem: *\([0-9]*\) kB/\1/p' /proc/meminfo)")
	echo "  ${left[-1]} kB of shared memory"
	seed=$((seed + 1))
done
least() { printf '%s\n' "$@" | sort -n | head -n 1; }
first=$(least "${left[@]:0:3}") last=$(least "${left[@]: -3}")
if [ $((last - first)) -gt 65536 ]; then
	echo "not ok soak: $first kB of shared memory at first, $last kB at the end"
	exit 1
fi
echo "ok soak: ${#left[@]} turns"
