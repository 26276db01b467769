#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Does the harness of Python's tests notice? harness/test_bad.py has a test for each way to
# fail; here is what has to be said about each of them, and that the tests between them run.
set -u
work=$(mktemp -d) || exit 1
export HARNESS_NAMES=$work/names COWSHED_TEST_PATIENCE=0.5
trap 'for n in $(cat "$work/names" 2>/dev/null); do rm -f "/dev/shm/$n"; done
	rm -rf "$work"' EXIT
bash tests/python/run.sh tests/python/harness/test_bad.py >"$work/out" 2>&1
status=$?
if [ $status -eq 77 ]; then
	grep '^skip' "$work/out"
	exit 77
fi
bad=0
pass() { echo "ok harness: $1"; }
fail() {
	echo "not ok harness: $1"
	bad=1
}
says() { # NAME PATTERN...: each of them begins a line
	local name=$1 pattern
	shift
	for pattern in "$@"; do
		grep -qE "^ *$pattern" "$work/out" || {
			fail "$name ($pattern)"
			return
		}
	done
	pass "$name"
}
t=test_bad.py::test
ended='\(the interpreter ended, status [0-9]+\)'
says 'a failure' "not ok ${t}_fails\$" 'E +assert \(1 \+ 1\) == 3'
says 'a skip' "skip ${t}_skips there is a reason"
says 'a hang' "not ok ${t}_hangs $ended" 'Timeout \(0:00:01\)!'
says 'a hang with the GIL' "not ok ${t}_hangs_with_the_gil $ended" \
	'File .* in test_hangs_with_the_gil'
says 'a crash' "not ok ${t}_crashes $ended" 'Fatal Python error: Segmentation fault'
says 'a hang in a child' "not ok ${t}_hangs_in_a_child $ended" 'File .* in test_hangs_in_a_child'
says 'a descriptor' "not ok ${t}_leaves_a_descriptor \(teardown\)" 'E +descriptors: [0-9]+ -> /$'
says 'a child' "not ok ${t}_leaves_a_child \(teardown\)" 'E +children: [0-9]+ sleep'
says 'an orphan' "ok ${t}_leaves_an_orphan " "not ok test_bad.py \(left behind: .*[0-9]+ sleep 999"
says 'a name' "not ok ${t}_leaves_a_name \(teardown\)" 'E +names: psm_'
says 'a thread' "not ok ${t}_leaves_a_thread \(teardown\)" 'E +threads: stays'
says 'an exception in a thread' "not ok ${t}_raises_in_a_thread" 'E +ZeroDivisionError'
says 'an exception in a destructor' "not ok ${t}_raises_in_a_destructor" 'E +RuntimeError: nobody'
says 'what passes' "ok ${t}_passes " "ok ${t}_passes_after_a_hang " "ok ${t}_passes_in_the_end "
if [ $status -eq 1 ]; then pass 'the exit status'; else fail "the exit status ($status)"; fi
# What a test started ends with its run; a zombie is for others to bury.
child=$(sed -nE 's/.*children: ([0-9]+) sleep.*/\1/p' "$work/out" | head -n 1)
if [ -n "$child" ] && ! grep -q '^State:.[^ZX]' "/proc/$child/status" 2>/dev/null; then
	pass 'a child that was left is ended'
else
	fail "a child that was left is ended ($child)"
fi
[ $bad -eq 0 ] || sed 's/^/    /' "$work/out"
exit $bad
