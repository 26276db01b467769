#!/bin/bash
# SPDX-License-Identifier: MIT
#
# NumPy's own tests: arrays and their memory, linear algebra, transforms, files.
. "$(dirname "$0")/lib.sh"

if ! has_module numpy pytest hypothesis; then
	skip 'numpy is not here, or pytest, or hypothesis'
	finish
fi
folder=$("$python" -c 'import numpy; print(numpy.__path__[0])')

# Each test asks for megabytes at most, and none of them compiles anything.
for part in core/tests/test_{multiarray,item_selection,indexing,nditer,memmap} \
	core/tests/test_{numeric,shape_base,regression,einsum,dlpack,strings} \
	lib/tests/test_{arraypad,function_base,io,format,stride_tricks,index_tricks} \
	fft/tests/test_pocketfft linalg/tests/test_regression ma/tests/test_core \
	random/tests/test_generator_mt19937; do
	if [ -e "$folder/$part.py" ]; then
		suite "numpy's $part" "$python" -m pytest -q \
			-p no:cacheprovider -p no:randomly -m 'not slow' \
			--junitxml "$results" "$folder/$part.py"
	else
		skip "numpy's $part is not here"
	fi
done
finish
