#!/bin/bash
# SPDX-License-Identifier: MIT
#
# As in a container: a /dev/shm of 64 KiB, no /proc, no writable files, and without the system
# calls that container runtimes deny. docs/containers.md explains each.
. "$(dirname "$0")/lib.sh"

alone_in=$(own_mounts)

# inside NAME MOUNTS PROGRAM [ARGUMENT]: with mounts of its own
inside() {
	local name="$1: $3" mounts=$2 program=$programs/$3
	shift 3
	if $alone_in sh -c "$mounts" 2>/dev/null; then
		must_succeed=1 compare "$name" $alone_in sh -c "$mounts"' && exec "$@"' sh "$program" "$@"
	else
		skip "$name no such mounts here"
	fi
}

read_only='for d in / /tmp /run /var /dev/shm; do
	mount --rbind $d $d && mount -o remount,bind,ro $d && ! touch $d/cowshed-$$ 2>/dev/null || exit
done'
for name in forks descendants 'raw_forks 20'; do
	inside 'small /dev/shm' 'mount -t tmpfs -o size=64k tmpfs /dev/shm' $name
	inside 'no /proc' 'mount -t tmpfs tmpfs /proc' $name
	inside 'nothing can be written' "$read_only" $name
done
program contained
compare "contained vforks" "$programs/contained" "$programs/vforks"
finish
