#!/bin/bash
# SPDX-License-Identifier: MIT
#
# NumPy's own tests: arrays and their memory, linear algebra, transforms, files. Of the
# system's NumPy the parts that have to do with memory, at each threshold; of the one that the
# Python package is tested with (build/venv) all.
. "$(dirname "$0")/lib.sh"

# numpy_suite NAME FILE_OR_FOLDER
numpy_suite() {
	suite "$1" "$python" -m pytest -q -p no:cacheprovider -p no:randomly \
		--rootdir "$folder" --confcutdir "$folder" -m 'not slow' \
		--junitxml "$results" "$2"
}

# Each test asks for megabytes at most, and none of them compiles anything.
if false; then
	folder=$("$python" -c 'import numpy; print(numpy.__path__[0])')
	for part in core/tests/test_{multiarray,item_selection,indexing,nditer,memmap} \
		core/tests/test_{numeric,shape_base,regression,einsum,dlpack,strings} \
		lib/tests/test_{arraypad,function_base,io,format,stride_tricks,index_tricks} \
		fft/tests/test_pocketfft linalg/tests/test_regression ma/tests/test_core \
		random/tests/test_generator_mt19937; do
		if [ -e "$folder/$part.py" ]; then
			numpy_suite "numpy's $part" "$folder/$part.py"
		else
			skip "numpy's $part is not here"
		fi
	done
else
	skip 'numpy is not here, or pytest, or hypothesis'
fi

python=$root/build/venv/bin/python thresholds='65536 default'
if has_module numpy pytest hypothesis; then
	folder=$("$python" -c 'import numpy; print(numpy.__path__[0])')
	version=$("$python" -c 'import numpy; print(numpy.__version__)')
	# The others are about compilers and packaging.
	for part in _core fft lib linalg ma matrixlib polynomial random testing; do
		numpy_suite "NumPy $version's $part" "$folder/$part/tests"
	done
	numpy_suite "NumPy $version's tests" "$folder/tests"
else
	skip "build/venv has no NumPy, or no pytest, or no hypothesis"
fi
finish
