#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Blocks of many sizes under the shim, glibc, jemalloc, mimalloc and tcmalloc
#
# bench/plain_churn makes, writes and frees blocks of random sizes, as `malloc-large` of
# mimalloc-bench does. All sides run in turns, each after a program that wrote 2 GiB: the
# host of a virtual machine takes back what was free for some seconds. Bars: wall time at
# most 0.8 of glibc's and 1.1 of the best rival's, peak of a memory cgroup at most 1.1 of
# glibc's.
. "$(dirname "$0")/common.sh"
need "$bin/plain_churn" "$bin/plain_measure" "$shim"

turns_of 5 5
times=1000
quick && times=50
rivals="glibc $(installed jemalloc jemalloc-thp mimalloc tcmalloc | tr '\n' ' ')"

compare() { # CASE ARGUMENTS...
	case_name=$1
	shift
	# shellcheck disable=SC2086
	in_turns "shim ${rivals% }" measured 2G "$bin/plain_churn" "$@"
	row "$case_name/wall" ms wall_ms glibc ratio 0.8
	row "$case_name/wall/best-rival" ms wall_ms "$rivals" ratio 1.1
	row "$case_name/cpu" ms cpu_ms glibc - 0
	row "$case_name/peak" MiB peak_mib glibc ratio 1.1
}

compare 5-25MiB -n $times
compare 5-25MiB-two-threads -t 2 -n $((times / 2))
compare 1-64MiB -l 1M -m 64M -n $((times / 2))
compare 1-64MiB-two-threads -l 1M -m 64M -t 2 -n $((times / 4))
