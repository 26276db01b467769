#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Requests that come while memory heals: how late are they answered?
#
# bench/plain_late forks, rewrites all of its memory while the child lives, and then serves. It
# runs with and without the shim, in turns. No bar: each side has its own reason to be late. The
# kernel copies pages for plain Linux, and the library thaws what was copied.
. "$(dirname "$0")/common.sh"
need "$bin/plain_late" "$bin/plain_measure" "$shim"

turns_of 5 2

once() { # SIDE
	warm 2G
	run_as "$1" "$bin/plain_late" -S 512M
	keep "$1"
}

in_turns 'plain shim' once
for figure in half p99 p999 worst; do
	row $figure us ${figure}_us plain - 0
done
