#!/bin/bash
# SPDX-License-Identifier: MIT
#
# PyTorch's own test_multiprocessing.py, by its own multiprocessing and by ours: with
# cowshed.torch.install(), and with cowshed.multiprocessing.install(). The shim has no part in it.
# $PYTORCH_SOURCE is a checkout of PyTorch, best at the tag of the version that is installed. Else
# the test is that of Debian's source package.
#
# One test has to fail with cowshed.torch.install(): test_fs wants a file in /dev/shm, and cowshed
# makes none.
. tests/outside/lib.sh
settings='cowshed.torch cowshed.multiprocessing'
[ -z "$quick" ] || settings=cowshed.torch
python=$(scripts/python.sh torch expecttest) ||
	skip 'no Python of 3.11 or newer with torch and expecttest (python/requirements-test.txt)'
case $python in build/*) python=$root/$python ;; esac
export PYTHONPATH=$root/${BUILD:-build/plain}/python PYTHONWARNINGS=ignore
"$python" -c 'import cowshed.torch' 2>/dev/null || skip 'the Python package is not built'
tree=${PYTORCH_SOURCE:-$(sources trixie pytorch)} || exit 77
test=$tree/test/test_multiprocessing.py
[ -e "$test" ] || skip "there is no $test"
limit=900
program='
import importlib, runpy, sys
setting, *sys.argv = sys.argv[1:]
if setting != "none":
    importlib.import_module(setting).install()
runpy.run_path(sys.argv[0], run_name="__main__")
'

# A warning or a message may stand between the name of a test and its result.
sift() {
	awk '/^test_[a-z0-9_]+ [(]/ { name = $1 }
		name && match($0, /(^|[.][.][.] ?)(ok|FAIL|ERROR|skipped .*|unexpected success)$/) {
			result = substr($0, RSTART)
			sub(/^[.][.][.] ?/, "", result)
			print name, result
			name = ""
		}' "$1" | sort
}

once() {
	local setting=$1 status
	shift
	TMPDIR="$work/tmp" setsid -w timeout -k 5 "$limit" "$python" -c "$program" "$setting" "$@" \
		</dev/null >"$work/$setting.log" 2>&1
	status=$?
	# A test that failed has a line of its own.
	[ $status -ne 1 ] || status=0
	{
		if [ "$setting" = cowshed.torch ]; then
			sift "$work/$setting.log" | sed 's/^test_fs FAIL$/test_fs ok/'
		else
			sift "$work/$setting.log"
		fi
		echo "status $status"
	} >"$work/$setting.out"
}

cp "$test" "$work" && cd "$work" || exit 1
compare test_multiprocessing test_multiprocessing.py -v
finish
