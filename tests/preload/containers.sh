#!/bin/bash
# SPDX-License-Identifier: MIT
#
# As in a container: a /dev/shm of 64 KiB, no /proc, nothing that may be written, the system calls
# denied that container runtimes deny. docs/containers.md says what that means.
. "$(dirname "$0")/lib.sh"

alone_in=$(own_mounts)

# inside NAME MOUNTS PROGRAM: with mounts of its own
inside() {
	if $alone_in sh -c "$2" 2>/dev/null; then
		must_succeed=1 compare "$1: $3" $alone_in sh -c "$2"' && exec "$1"' sh "$programs/$3"
	else
		skip "$1: $3 no such mounts here"
	fi
}

read_only='for d in / /tmp /run /var /dev/shm; do
	mount --rbind $d $d && mount -o remount,bind,ro $d && ! touch $d/cowshed-$$ 2>/dev/null || exit
done'
for name in forks descendants raw_forks; do
	inside 'small /dev/shm' 'mount -t tmpfs -o size=64k tmpfs /dev/shm' $name
	inside 'no /proc' 'mount -t tmpfs tmpfs /proc' $name
	inside 'nothing can be written' "$read_only" $name
done
program contained
finish
