#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Copies between tensors against NumPy and PyTorch (copies.py, tensors.py). CASES: how many.
for python in "${PYTHON:-}" python3; do
	[ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null && break
	python=
done
if [ -z "$python" ]; then
	echo "skip copies: against NumPy (not installed)"
	exit 77
fi
export PYTHONPYCACHEPREFIX=$PWD/build/pycache # tensors.py is imported
exec "$python" "$(dirname "$0")/copies.py" "$BUILD/lib/libcowshed-tensor.so.0" \
	"${CASES:-3000}" "${SEED:-}"
