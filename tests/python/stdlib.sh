#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The standard library's tests of multiprocessing on ours, for each way to start a process
# (stdlib/multiprocessing_tests.py: which, and what is left out and why). LONG=1: all of them.
# They mostly wait, so the ways go side by side. A process group for each: what a test leaves
# running ends with it, but first has the time to tidy up.
set -u
package=${BUILD:-$PWD/build/plain}/python
case $package in /*) ;; *) package=$PWD/$package ;; esac
if [ ! -e "$package/cowshed/_cowshed.abi3.so" ]; then
	echo 'skip stdlib the Python package is not built'
	exit 77
fi
if ! python=$(scripts/python.sh test._test_multiprocessing); then
	echo 'skip stdlib no Python of 3.11 or newer that has its tests'
	exit 77
fi
work=$(mktemp -d) || exit 1
methods='fork spawn forkserver'
any_left() {
	local method
	for method in $methods; do
		kill -0 -- "-$(<"$work/$method.group")" && return 0
	done
	return 1
}
end_groups() {
	local method i
	for ((i = 0; i < 40; i++)); do
		any_left || return 0
		read -rt 0.05 <> <(:) || :
	done
	for method in $methods; do kill -KILL -- "-$(<"$work/$method.group")"; done
} 2>/dev/null
trap 'end_groups; rm -rf "$work"' EXIT
export PYTHONPATH=$package PYTHONPYCACHEPREFIX=$PWD/build/pycache PYTHONFAULTHANDLER=1 TMPDIR=$work
unset LD_PRELOAD COWSHED_OPTIONS PYTHONDONTWRITEBYTECODE
for method in $methods; do
	# It leads a group, whose number is the shell's that becomes it.
	setsid --wait bash -c 'echo $$ >"$1"; shift; exec "$@"' bash "$work/$method.group" \
		"$python" tests/python/stdlib/multiprocessing_tests.py $method ${LONG:+--long} \
		>"$work/$method" 2>&1 &
	pids+=($!)
done
bad=0
for method in $methods; do
	wait "${pids[0]}"
	status=$? pids=("${pids[@]:1}")
	grep -v '^#' "$work/$method"
	[ $status -eq 0 ] && continue
	bad=1
	# It ended before it could say which test failed.
	grep -q '^not ok' "$work/$method" || echo "not ok $method: ended with status $status"
done
exit $bad
