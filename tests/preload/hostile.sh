#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Programs that close every descriptor, reuse the numbers, live in sandboxes, give up
# privileges, or start other programs: the shim must cope.
. "$(dirname "$0")/lib.sh"

program descriptors
program close_all
program close_all first
program reuse_numbers
program lowest_number
program spawn
program vforks
program denied
program sandboxed
program user_namespace
program dropped
program privileges
program strangers
if [ "$(report=$work/report && under default "$programs/strangers" >/dev/null 2>&1 &&
	served "$report")" -gt 0 ]; then
	pass 'strangers: of a process that is served'
else
	fail 'strangers: of a process that is served'
fi

# Without /proc, if mounts of our own are allowed.
hidden='mount -t tmpfs none /proc && exec "$@"'
if unshare -rm sh -c "$hidden" sh true 2>/dev/null; then
	for name in forks descendants zero idle_threads; do
		must_succeed=1 compare "no /proc: $name" unshare -rm sh -c "$hidden" sh \
			"$programs/$name"
	done
else
	skip 'no /proc: it cannot be hidden here'
fi
finish
