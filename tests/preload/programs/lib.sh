# SPDX-License-Identifier: MIT
#
# lib.sh: what the slow scripts share; sourced, never run. To ../lib.sh it adds
# the test suites that programs have of their own.
. "$(dirname "$0")/../lib.sh"
limit=1500
must_succeed=1 # what fails by itself proves nothing
export HYPOTHESIS_STORAGE_DIRECTORY=$work/hypothesis
python=/usr/bin/python3 # the one that Debian's packages of tests are for

# junit FILE: each test of the suite that wrote FILE, and how it ended
junit() {
	"$python" -c '
import sys, xml.etree.ElementTree as xml
for case in xml.parse(sys.argv[1]).iter("testcase"):
    ended = {e.tag for e in case} & {"failure", "error", "skipped"}
    print(case.get("classname", ""), case.get("name"), *sorted(ended or ["ok"]))
' "$1" | sort
}

# suite NAME COMMAND...: COMMAND writes its results as JUnit to $results. Each
# test ends as without the shim, whether it passes there or not.
results=$work/results.xml
suite() {
	local name=$1 must_succeed=
	shift
	sift() {
		cat "$work/$1".{out,err} >"$work/$1.log"
		: >"$work/$1.err"
		junit "$results" >"$work/$1.out" 2>>"$work/$1.log"
		rm -f "$results"
		[ -s "$work/$1.out" ]
	}
	compare "$name" "$@"
	sift() { :; }
}

# has_module MODULE...: does $python have them?
has_module() {
	local module
	for module; do
		"$python" -c "import $module" 2>/dev/null || return 1
	done
}
