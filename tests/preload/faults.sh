#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The page faults of a fork. What the engine writes at each fork lies together, and so does the
# code that runs in each child (memfd/forked.h). Elsewhere each variable would cost a page.
. "$(dirname "$0")/lib.sh"
thresholds=default
[ "${MODE:-plain}" = plain ] || { skip "faults without optimization functions lie apart" && exit 77; }

# at_most FAULTS MIB: so many more with the shim than without
at_most() {
	local name="faults of a fork with $2 MiB" plain shim
	plain=$(plainly "$programs/fork_faults" "$2" 2>"$work/err") &&
		shim=$(under default "$programs/fork_faults" "$2" 2>>"$work/err") || {
		fail "$name" "$work/err"
		return
	}
	echo "$plain faults without the shim, $shim with it" >"$work/counts"
	if [ "$shim" -le $((plain + $1)) ]; then pass "$name"; else fail "$name" "$work/counts"; fi
}
at_most 12 0
at_most 24 8
finish
