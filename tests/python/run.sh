#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh FILE[:shim]: a file of Python tests, one line a test (conftest.py prints them); with
# ":shim" under `cowshed run`, where all large memory of the interpreter is the engine's.
#
# A test that takes the interpreter down, or that hangs until conftest.py ends it, fails by
# itself: it has left its name in $work/now, and the tests after it run in another one. What
# it started is in its process group, which ends with it; those who hang say where first.
set -u
test=${1#./} file=${1#./} shim=
case $test in *:shim) file=${test%:shim} shim=1 ;; esac
root=$PWD package=${BUILD:-$PWD/build/plain}/python
case $package in /*) ;; *) package=$root/$package ;; esac
if [ ! -e "$package/cowshed/_cowshed.abi3.so" ]; then
	echo "skip $test the Python package is not built"
	exit 77
fi
if ! python=$(scripts/python.sh pytest); then
	echo "skip $test no Python of 3.11 or newer with pytest"
	exit 77
fi

# Without compiled modules each of a test's processes would compile all of PyTorch again.
unset LD_PRELOAD COWSHED_OPTIONS PYTHONDONTWRITEBYTECODE
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$package PYTHONPYCACHEPREFIX=$root/build/pycache PYTHONFAULTHANDLER=1
export TMPDIR=$work COWSHED_TEST_WORK=$work COWSHED_TEST_SHIM=$shim
ulimit -c 0
run=("$python" -m pytest -c /dev/null --rootdir=tests/python -p no:cacheprovider
	-p no:terminal "$file")
[ -z "$shim" ] || run=("$package/cowshed/bin/cowshed" run -- "${run[@]}")
# A /dev/shm of its own, if that may be: what other programs leave in it for a while is not
# for leaks.py.
mount='mount -t tmpfs tmpfs /dev/shm && exec "$@"'
if unshare -m sh -c "$mount" sh true 2>/dev/null; then
	export COWSHED_TEST_OWN_SHM=1
	run=(unshare -m sh -c "$mount" sh "${run[@]}")
fi

# gone: has the group ended? In SECONDS of waiting. A zombie that nobody waits for stays in it.
gone() {
	local i
	for ((i = 0; i < $1 * 20; i++)); do
		kill -0 -- "-$leader" 2>/dev/null || return 0
		read -rt 0.05 <> <(:) || :
	done
	return 1
}

# end_group: whoever is left of it. Those who tidy up have their time, then they say where
# they are (faulthandler), then they end.
end_group() {
	local leader
	{ read -r leader <"$work/group"; } 2>/dev/null || return 0
	: >"$work/group"
	gone 2 || { kill -ABRT -- "-$leader" && gone 1; } || kill -KILL -- "-$leader"
} 2>/dev/null
trap 'end_group; rm -rf "$work"' EXIT

# living GROUP: "PID COMMAND" of each in it that is no zombie
living() {
	local stat line fields
	for stat in /proc/[0-9]*/stat; do
		{ read -r line <"$stat"; } 2>/dev/null || continue
		read -r -a fields <<<"${line##*) }"
		[ "${fields[2]}" = "$1" ] && [ "${fields[0]}" != Z ] || continue
		stat=${stat%/stat}
		echo "${stat#/proc/} $(tr '\0' ' ' <"$stat/cmdline")"
	done 2>/dev/null
}

# left_in_group: who still lives there when an interpreter that ended well has been gone for as
# long as leaks.py waits. That one knows children; orphans are nobody's.
left_in_group() {
	local leader i patience=${COWSHED_TEST_PATIENCE:-5} found=
	{ read -r leader <"$work/group"; } 2>/dev/null || return 0
	for ((i = 0; i <= ${patience%.*} * 20; i++)); do
		kill -0 -- "-$leader" 2>/dev/null && found=$(living "$leader") &&
			[ -n "$found" ] || return 0
		read -rt 0.05 <> <(:) || :
	done
	echo "$found"
}

: >"$work/done"
failed=0
while :; do
	: >"$work/now" >"$work/group"
	setsid --wait "${run[@]}" &
	{ wait $!; } 2>/dev/null
	status=$?
	left=
	[ -s "$work/now" ] || left=$(left_in_group)
	end_group
	if [ -n "$left" ]; then
		echo "not ok ${shim:+shim: }${file##*/} (left behind: ${left//$'\n'/; })"
		failed=1
	fi
	[ -s "$work/now" ] || break
	echo "not ok ${shim:+shim: }$(<"$work/now") (the interpreter ended, status $status)"
	failed=1
	! grep -qxF -f "$work/now" "$work/done" || break # nothing is gained by a third try
	cat "$work/now" >>"$work/done"
done
case $status in
0 | 5) exit $failed ;; # 5: no tests were left; check.sh wants a line of one all the same
*) exit 1 ;;
esac
