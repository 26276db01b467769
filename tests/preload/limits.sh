#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Small limits, set by the program or by its starter. Memory that the program can get
# without the shim it gets with it; other requests are refused.
. "$(dirname "$0")/lib.sh"

# Closes other descriptors of the caller, which would count, too (255 is bash's own).
for fd in /proc/$$/fd/*; do
	case ${fd##*/} in [012] | 255 | '*') ;; *) eval "exec ${fd##*/}>&-" ;; esac
done

program limits
program locked
program map_count
program filtered

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
limited 'private memory of 128 MiB' '-d 131072' "$programs/forks"
# Root has no such limit; another user may not reach the build. (dash: bash would try for long.)
other=()
[ "$(id -u)" -ne 0 ] || other=(setpriv "--reuid=$((60000 + $$ % 5000))" --clear-groups)
chmod 711 "$work"
cp "$programs/sparse" "$shim" "$BUILD/lib/libcowshed.so.0" "$work"
if "${other[@]}" dash -c '(:)' 2>/dev/null &&
	! "${other[@]}" prlimit --nproc=1:1 dash -c '(:)' 2>/dev/null &&
	"${other[@]}" test -x "$work/sparse"; then
	preload=$work/${shim##*/} limited 'no process more' '-u 1' "${other[@]}" "$work/sparse"
else
	skip 'no process more: no user here with that limit'
fi
limited 'twelve descriptors' '-n 12' "$programs/forks"
limited 'four descriptors' '-n 4' "$programs/zero"
limited 'no file may grow' '-f 0' "$programs/descendants"
limited 'small stack' '-s 256' "$programs/realloc"
limited 'no locked memory' '-l 0' "$programs/forks"

# In a memory cgroup of 256 MiB, version 1 or 2. The kernel kills above the limit.
group=
for at in /sys/fs/cgroup/memory /sys/fs/cgroup; do
	mkdir "$at/cowshed-test-$$" 2>/dev/null || continue
	group=$at/cowshed-test-$$
	trap 'rmdir "$group"; rm -rf "$work"' EXIT
	for most in memory.limit_in_bytes memory.max; do
		[ ! -w "$group/$most" ] || break 2
	done
	rmdir "$group" && group=
done
if [ -n "$group" ] && echo 256M >"$group/$most" 2>/dev/null; then
	for name in sparse forks; do
		must_succeed=1 compare "memory cgroup: $name" sh -c \
			'echo $$ >"$1/cgroup.procs" && exec "$2"' sh "$group" \
			"$programs/$name"
	done
	must_succeed=1 compare "memory cgroup: the process that is killed" sh -c \
		'echo $$ >"$1/cgroup.procs" && exec "$2" victims 256' sh "$group" \
		"$programs/resident"
else
	skip 'memory cgroup: none can be made here'
fi
finish
