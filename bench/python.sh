#!/bin/bash
# SPDX-License-Identifier: MIT
#
# python.sh [NAME...]: the Python package against its rivals (bench/python), each in the same
# run as ours. The rivals are of build/venv (scripts/python-env.sh).
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build/plain}
case $build in /*) ;; *) build=$PWD/$build ;; esac
python=$PWD/build/venv/bin/python
"$python" -c 'import numpy, torch' 2>/dev/null || python=$(command -v python3)
export PYTHONPATH=$build/python
failed=0
for name in ${*:-clone small send snapshot serve dask_rechunk}; do
	echo "== $name"
	"$python" "bench/python/$name.py" || failed=1
done
exit $failed
