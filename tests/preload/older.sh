#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Programs as if the kernel were older (tests/programs/older.c). Where memfds can't have huge pages,
# and their page tables can't be moved, they cost a program more than libc's memory. So blocks
# are left to libc there, unless the options ask for the engine.
. "$(dirname "$0")/lib.sh"

"$programs/older" 5.10 true 2>/dev/null || {
	skip older 'no filter of system calls can be set'
	exit 77
}
plainly "$programs/zero" >"$work/plain.out" 2>"$work/plain.err"
plain=$?

# serves KERNEL OPTIONS -eq|-gt: does the engine serve nothing, or something?
serves() {
	rm -f "$work/report"
	timeout -k 5 "$limit" "$programs/older" "$1" env LD_PRELOAD="$shim" \
		COWSHED_OPTIONS="report=$work/report${2:+,$2}" "$programs/zero" \
		>"$work/shim.out" 2>"$work/shim.err"
	got=$?
	same "as on $1${2:+, $2}: zero"
	if [ "$(served "$work/report")" "$3" 0 ]; then
		pass "as on $1${2:+, $2}: what is served"
	else
		fail "as on $1${2:+, $2}: $(served "$work/report") bytes are served"
	fi
}

case $(cat /sys/kernel/mm/transparent_hugepage/shmem_enabled 2>/dev/null) in
*'[always]'* | *'[within_size]'* | *'[force]'*) serves 5.10 '' -gt ;;
*) serves 5.10 '' -eq ;;
esac
for options in threshold=64K backing=memfd backing=auto share=yes; do serves 5.10 $options -gt; done
serves 6.1 '' -gt
finish
