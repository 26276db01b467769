#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The standard library's own tests of multiprocessing, on cowshed.multiprocessing, for each
# start method: those of queues, connections and listeners; with LONG=1 all of them.
set -u
root=$PWD package=${BUILD:-$PWD/build/plain}/python
case $package in /*) ;; *) package=$root/$package ;; esac
if [ ! -e "$package/cowshed/_cowshed.abi3.so" ]; then
	echo "skip multiprocessing's own tests: the Python package is not built"
	exit 77
fi
for python in ${PYTHON:+"$PYTHON"} build/venv/bin/python python3 /usr/bin/python3 ''; do
	"$python" -c 'import test._test_multiprocessing, sys; sys.exit(sys.version_info < (3, 11))' \
		2>/dev/null && break
done
if [ -z "$python" ]; then
	echo "skip multiprocessing's own tests: no Python of 3.11 or newer that has them"
	exit 77
fi
unset LD_PRELOAD COWSHED_OPTIONS
export PYTHONPATH=$package PYTHONPYCACHEPREFIX=$root/build/pycache
failed=0
for method in fork spawn forkserver; do
	timeout ${LONG:+1}200 "$python" tests/python/stdlib/multiprocessing_tests.py "$method" \
		${LONG:+--long} || failed=1
done
exit "$failed"
