#!/bin/bash
# SPDX-License-Identifier: MIT
#
# measures.sh: glibc and the shim in turns, "measure NAME SHIM GLIBC", each a median, with and without
# huge pages for all. Each side is the first of a round in turn, after a run of the same size. It runs
# as root in a virtual machine (sets.sh), and sets transparent_hugepage/enabled there.
set -u
BUILD=${BUILD:-build/plain} huge=/sys/kernel/mm/transparent_hugepage/enabled status=0

# field NAME: of a line of bench/plain_*
field() { tr ' ' '\n' | sed -n "s/^$1=//p"; }
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }

for setting in always madvise; do
	echo $setting >$huge
	tmp=$(mktemp -d)
	"$BUILD/bench/plain_fork" -t 1G -b 64M -n 1 >/dev/null || status=1
	for round in 'glibc shim' 'shim glibc' 'glibc shim'; do
		for side in $round; do
			[ $side = glibc ] && preload='' || preload=$PWD/$BUILD/lib/libcowshed-preload.so
			LD_PRELOAD=$preload "$BUILD/bench/plain_fork" -t 1G -b 64M -n 6 >"$tmp/out" || status=1
			field fill_ms <"$tmp/out" >>"$tmp/fill.$side"
			grep '^fork=1 ' "$tmp/out" | field pause_us >>"$tmp/first-fork.$side"
			grep '^fork=[2-6] ' "$tmp/out" | field pause_us >>"$tmp/later-forks.$side"
			"$BUILD/bench/plain_measure" ${preload:+-p "$preload"} -o "$tmp/out" -- \
				"$BUILD/bench/plain_churn" -n 100 -a 10 >/dev/null || status=1
			field wall_ms <"$tmp/out" >>"$tmp/churn-wall.$side"
			field cpu_ms <"$tmp/out" >>"$tmp/churn-cpu.$side"
		done
	done
	for name in fill first-fork later-forks churn-wall churn-cpu; do
		echo "measure $name/$setting $(median <"$tmp/$name.shim") $(median <"$tmp/$name.glibc")"
	done
	rm -rf "$tmp"
done
BENCH_QUICK=1 "$BUILD/bench/transparent" | sed -n \
	's/^bench=transparent case=\(first-clone\|second-clone-1%-written\) .* ours=\([^ ]*\) .* rival=\([^ ]*\) .*/measure \1 \2 \3/p'
exit $status
