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

turns_of 3 3

compare() { # CASE RIVAL ON ARGUMENTS...
	case_name=$1 rival=$2 on=$3
	shift 3
	in_turns "$rival shim" measured 1G "$bin/plain_sparse" "$@"
	row "$case_name" MiB peak_mib $rival "$on" 2
}

compare 16GiB-1% plain ratio -s 16G
compare 1GiB-1% plain - -s 1G
# cowshed commits some MiB ahead even if less is touched.
compare 1GiB-0.1% plain - -s 1G -p 1
compare 1GiB-1%/huge-pages huge - -s 1G
