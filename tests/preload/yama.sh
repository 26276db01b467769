#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Where Yama keeps equal users from tracing each other, every fork is a border
#
# It needs a kernel whose ptrace_scope is 1 or 2 (`make check-kernels` sets it in a virtual
# machine), and root, to become a user who may trace nobody. tests/programs/border.c says what a row
# is.
. "$(dirname "$0")/lib.sh"

border=$programs/border
scope=$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)

if [ "$scope" = 0 ]; then
	skip "yama ptrace_scope is 0, or there is no Yama"
	finish
elif [ "$(id -u)" -ne 0 ]; then
	skip "yama it needs root"
	finish
fi

# row OPTIONS EXPECTED DIRECTION BIRTH WAY STATE ATTACK
row() {
	local options=$1 expected=$2 got
	shift 2
	setpriv --reuid 65534 --regid 65534 --clear-groups \
		env LD_PRELOAD="$preload" COWSHED_OPTIONS="$options" "$border" "$@" \
		>"$work/out" 2>&1 </dev/null
	got=$?
	if [ "$got" -eq "$expected" ]; then pass "yama $* $options"; else fail "yama $* $options" "$work/out"; fi
}

# The last one shows that the rows could fail.
for attack in held write grow read; do
	row '' 0 child fork none clean "$attack"
	row '' 0 sibling fork none clean "$attack"
done
row '' 0 child fork none freed read
row '' 0 child fork none dense grow
row border=calls 1 child fork none clean held
finish
