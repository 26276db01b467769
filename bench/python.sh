#!/bin/bash
# SPDX-License-Identifier: MIT
#
# python.sh [NAME...]: the Python package against its rivals (bench/python). Ours and the
# rivals run in turns. The rivals come from build/venv (scripts/python-env.sh).
# BENCH_QUICK=1: small sizes. If a figure can't be measured, its line has met=failed, and
# the script exits with 1.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build/plain}
case $build in /*) ;; *) build=$PWD/$build ;; esac
python=$PWD/build/venv/bin/python
"$python" -c 'import numpy, torch' 2>/dev/null || python=$(command -v python3)
export PYTHONPATH=$build/python
rechunk=()
if [ "${BENCH_QUICK:-0}" != 0 ]; then
	export ROUNDS=${ROUNDS:-2} GIB=${GIB:-0.25} MIB=${MIB:-32} COUNT=${COUNT:-1000} LIMIT=${LIMIT:-20} ALIVE=${ALIVE:-50} CHECKPOINTS=${CHECKPOINTS:-3}
	rechunk=(--gib 0.5 --runs 1)
fi
failed=0
log=$(mktemp) && trap 'rm -f "$log"' EXIT || exit 1
for name in ${*:-clone small send snapshot train serve writable shared_memory arrow objects templates joblib_tasks dask_rechunk}; do
	echo "== $name"
	more=()
	[ "$name" != dask_rechunk ] || more=("${rechunk[@]}")
	"$python" "bench/python/$name.py" "${more[@]}" | tee "$log"
	[ "${PIPESTATUS[0]}" = 0 ] && ! grep -q ' met=failed' "$log" || failed=1
done
exit $failed
