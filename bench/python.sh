#!/bin/sh
# SPDX-License-Identifier: MIT
#
# python.sh [NAME...]: the Python package against its rivals (bench/python). Ours and the
# rivals run in turns. The rivals come from build/venv (scripts/python-env.sh).
# BENCH_QUICK=1: small sizes. If a figure can't be measured, its line has met=failed, and
# the script exits with 1.
. "$(dirname "$0")/common.sh"
cd "$root" || exit 1
python=$root/build/venv/bin/python
"$python" -c 'import numpy, torch' 2>/dev/null || python=$(command -v python3)
export PYTHONPATH="$build/python" MEASURE="$bin/plain_measure"
if quick; then
	export ROUNDS="${ROUNDS:-2}" GIB="${GIB:-0.25}" MIB="${MIB:-32}" COUNT="${COUNT:-1000}"
	export LIMIT="${LIMIT:-20}" ALIVE="${ALIVE:-50}" CHECKPOINTS="${CHECKPOINTS:-3}"
fi
[ $# -gt 0 ] || set -- clone small send snapshot train serve writable arrow objects \
	templates joblib_tasks dask_rechunk
for name in "$@"; do
	echo "== $name"
	{ "$python" "bench/python/$name.py" || : >"$tmp/failed"; } | tee "$tmp/log"
	! grep -q ' met=failed' "$tmp/log" || : >"$tmp/failed"
done
