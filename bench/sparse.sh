#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The memory of a sparse block: 16 GiB, 1 % of its pages touched at random
#
# This script runs bench/plain_sparse with and without the shim, in turns, and measures
# the peak of a memory cgroup of its own, page tables included. Bar: at most twice the
# peak of glibc with 4 KiB pages. glibc with huge pages would take all 16 GiB, so that
# rival runs with 1 GiB only.
. "$(dirname "$0")/common.sh"
need "$bin/plain_sparse" "$bin/plain_measure" "$shim"

turns=${BENCH_ROUNDS:-3}

peak() { # SIDE SHIM ARGUMENTS...: appends to $tmp/SIDE
	side=$1 shim_used=$2
	shift 2
	"$bin/plain_measure" -o "$tmp/line" -p "$shim_used" -- \
		"$bin/plain_sparse" "$@" >/dev/null ||
		fail "plain_sparse failed ($side, $*)"
	field peak_kib <"$tmp/line" | awk '{ print $1 / 1024 }' >>"$tmp/$side"
	field peak_by <"$tmp/line" >>"$tmp/by"
}

compare() { # CASE ON ARGUMENTS-OF-THE-RIVAL ARGUMENTS-OF-BOTH...
	case_name=$1 on=$2 rival=$3
	shift 3
	: >"$tmp/ours"
	: >"$tmp/rival"
	: >"$tmp/by"
	turn=0
	while [ $turn -lt "$turns" ]; do
		peak rival '' $rival "$@"
		peak ours "$shim" "$@"
		turn=$((turn + 1))
	done
	report sparse "$case_name" MiB "$tmp/ours" "$tmp/rival" "$on" 2 \
		"$(peak_by "$tmp/by")"
}

compare 16GiB-1% ratio '' -s 16G
compare 1GiB-1% - '' -s 1G
# cowshed commits some MiB ahead even if less is touched.
compare 1GiB-0.1% - '' -s 1G -p 1
compare 1GiB-1%/huge-pages - -H -s 1G
