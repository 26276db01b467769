#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The growth of costs with storages, processes, threads and bytes (bench/scaling.c). It
# prints the figures of docs/scaling.md for this machine. It needs up to 5 GiB of memory;
# with BENCH_QUICK=1, 1 GiB.
. "$(dirname "$0")/common.sh"
need "$bin/scaling"

# grow TITLE WHAT COUNT...: one line for each COUNT
grow() {
	echo "== $1"
	what=$2
	shift 2
	for count; do
		"$bin/scaling" "$what" "$count" || fail "scaling $what $count"
	done
}

million=1000000 gib4=4096
if quick; then million='' gib4=''; fi
"$bin/plain_measure" -w ${gib4:-1024}M >/dev/null # the host backs the memory then
grow 'storages of a page in one process' storages 1000 10000 100000 $million
grow 'the same, in memory of a group' shared 1000 10000 100000
grow 'children at once of a process with 256 MiB' processes 1 10 50 100 300
grow 'threads that clone one storage' threads 1 2 4 8
grow 'one block' bytes 64 256 1024 $gib4
