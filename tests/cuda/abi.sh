#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Our declarations of the CUDA driver's interface (cuda/abi.h, cuda/calls.h) are
# those of the toolkit's <cuda.h>, where there is a toolkit: in CUDA_HOME, or where
# nvcc includes it from.
set -u
CC=${CC:-gcc}
header=${CUDA_HOME:+$CUDA_HOME/include/cuda.h}
if [ ! -e "${header:-/}" ] || [ -z "$header" ]; then
	header=$(printf '#include <cuda.h>\n' >"${TMPDIR:-/tmp}/abi.$$.cu" &&
		nvcc -M "${TMPDIR:-/tmp}/abi.$$.cu" 2>/dev/null |
		tr -d '\\' | tr ' ' '\n' | grep '/cuda\.h$' | head -n 1)
	rm -f "${TMPDIR:-/tmp}/abi.$$.cu"
fi
if [ -z "$header" ]; then
	echo 'skip abi: no CUDA toolkit here (no nvcc, no CUDA_HOME)'
	exit 77
fi
if $CC -std=gnu11 -I. -isystem "$(dirname "$header")" -Wall -Wextra -Werror \
	-DCOW_HAVE_CUDA_H -fsyntax-only tests/cuda/abi.c; then
	echo 'ok abi: as in cuda.h'
else
	echo 'not ok abi: not as in cuda.h'
	exit 1
fi
