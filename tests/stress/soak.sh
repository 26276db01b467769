#!/bin/bash
# SPDX-License-Identifier: MIT
#
# soak.sh SECONDS: storms of shared storages with kills and storms of forks under the shim, in turns
# of a minute, and after each what shared memory the machine has: it must not be more and more.
# SEED=number: of the first turn. `make check` has half a minute of it (share_storm.sh, storm.sh).
set -u
cd "$(dirname "$0")/../.." || exit 1
seed=${SEED:-$(date +%s)}
turn=${TURN:-60}

shmem() { sed -n 's/^Shmem: *\([0-9]*\) kB/\1/p' /proc/meminfo; }

before=$(shmem) turns=0 grown=0 most=$(shmem)
until=$((SECONDS + $1))
while [ $SECONDS -lt $until ]; do
	"$BUILD/tests/stress/share_storm" "$turn" "$seed" 12 >/dev/null || exit 1
	STRESS=$turn SEED=$seed bash tests/preload/storm.sh >/dev/null || exit 1
	now=$(shmem)
	# Other programs have shared memory, too: what never stops growing is a leak.
	if [ "$now" -gt "$most" ]; then most=$now grown=$((grown + 1)); else grown=0; fi
	turns=$((turns + 1)) seed=$((seed + 1))
	echo "turn $turns, seed $((seed - 1)): $now kB of shared memory ($before before)"
	if [ "$grown" -ge 10 ]; then
		echo 'not ok soak: shared memory has grown ten times in a row'
		exit 1
	fi
done
echo "ok soak: $turns turns"
