#!/bin/bash
# SPDX-License-Identifier: MIT
#
# sets.sh SET: what a virtual machine of scripts/check-kernels.sh runs. It runs in the tree, which
# is read-only there, as root. Tests that take long are left out, unless FULL is set: under
# emulation all takes ten to twenty times as long.
set -u
BUILD=${BUILD:-build/plain}
export BUILD QUICK=1 JOBS=2 BUDGET=100000 LIMIT=400 CK_TIMEOUT_MULTIPLIER=40 COMMAND_LIMIT=200
uname -srm
getconf PAGESIZE

folders='core core/base core/memory core/cow core/storage core/program core/fork memfd share share/broker'

# programs SECONDS FOLDER...: its test programs that took at most so long where tests/seconds.txt
# was written; all with FULL
programs() {
	local most=$1 program name folder
	shift
	for folder; do
		for program in "$BUILD/tests/$folder"/*; do
			name=${program#"$BUILD/tests/"}
			case $program in *.d | *.o | *.so*) continue ;; esac
			[ -f "$program" ] && [ -x "$program" ] || continue
			[ -n "${FULL:-}" ] || awk -v n="$name" -v most="$most" '
				$1 == n { found = $2 <= most } END { exit !found }' tests/seconds.txt || continue
			echo "$program"
		done
	done
}

check() { [ $# -eq 0 ] || scripts/check.sh "$@" || status=1; }

# What programs meet under other conditions: forks, clones, sharing, the shim
few() { check "$BUILD"/examples/{hello,fork} "$BUILD"/tests/share/{test_more,test_share} tests/kernels/programs.sh; }

# More than the machine's memory. Or the set would say nothing of swap.
swapped() {
	LD_PRELOAD=$PWD/$BUILD/lib/libcowshed-preload.so "$BUILD/tests/programs/swapped" 700 &&
		echo ok swapped || { echo not ok swapped && status=1; }
	grep -q '^pswpout [1-9]' /proc/vmstat || { echo 'not ok swap: nothing was swapped out' && status=1; }
}

# field NAME: of a line of bench/plain_*
field() { tr ' ' '\n' | sed -n "s/^$1=//p"; }
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }

# measures: glibc and the shim in turns, "measure NAME SHIM GLIBC", each a median, with and without
# huge pages for all
measures() {
	local huge=/sys/kernel/mm/transparent_hugepage/enabled setting round side preload tmp
	for setting in always madvise; do
		echo $setting >$huge
		tmp=$(mktemp -d)
		for round in 1 2 3; do
			for side in glibc shim; do
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
}

status=0
case $1 in
quick) check $(programs 0.3 $folders) "$BUILD"/tests/core/fork/test_fork "$BUILD"/tests/core/cow/test_layers \
	"$BUILD"/tests/core/storage/test_storage "$BUILD"/examples/{hello,fork} tests/kernels/programs.sh ;;
core) check $(programs 5 core core/base core/storage core/program memfd) ;;
memory) check $(programs 5 core/memory) ;;
cow) check $(programs 5 core/cow) ;;
fork) check $(programs 10 core/fork) ;;
sharing) check $(programs 5 share share/broker hostile) ;;
shim) check "$BUILD"/examples/{hello,fork} tests/kernels/programs.sh tests/preload/{usage,loading,doctor,command,family}.sh ;;
measures) measures ;;
small) few ;;
swap) mkswap /dev/vda >/dev/null && swapon /dev/vda && few && swapped ;;
overcommit) echo 2 >/proc/sys/vm/overcommit_memory && few ;;
containers) check tests/preload/containers.sh ;;
*) echo "sets.sh: no set $1" && exit 1 ;;
esac
case $1 in
quick | shim) "$BUILD/bin/cowshed" doctor ;;
esac
exit $status
