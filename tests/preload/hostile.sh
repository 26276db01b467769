#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Programs that close every descriptor, reuse the numbers, live under limits
# and in sandboxes, or start other programs: the shim does without.
. "$(dirname "$0")/lib.sh"

program close_all
program close_all first
program reuse_numbers
program spawn
program vforks
program limits
program denied
program user_namespace

# limited NAME ULIMIT-ARGUMENTS PROGRAM...: the limit is there before exec. What
# the program prints goes through a pipe, since no file may grow in one case.
limited() {
	local name=$1 arguments=$2
	shift 2
	must_succeed=1 compare "$name" bash -c "(ulimit $arguments &&
		exec \"\$@\") 2>&1 | cat; exit \${PIPESTATUS[0]}" limited "$@"
}
limited 'address space of 512 MiB' '-v 524288' "$programs/forks"
limited 'address space of 4 GiB' '-v 4194304' "$programs/zero"
limited 'twelve descriptors' '-n 12' "$programs/forks"
limited 'four descriptors' '-n 4' "$programs/zero"
limited 'no file may grow' '-f 0' "$programs/descendants"
limited 'small stack' '-s 256' "$programs/realloc"
limited 'no locked memory' '-l 0' "$programs/forks"

# Without /proc, where that can be had without being root.
hidden='mount -t tmpfs none /proc && exec "$@"'
if unshare -rm sh -c "$hidden" sh true 2>/dev/null; then
	for name in forks descendants zero idle_threads; do
		compare "no /proc: $name" unshare -rm sh -c "$hidden" sh \
			"$programs/$name"
	done
else
	skip 'no /proc: it cannot be hidden here'
fi
finish
