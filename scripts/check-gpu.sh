#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check-gpu.sh: the CUDA tests on the machine's own driver and GPU instead of the
# reference driver, then under compute-sanitizer where that is. Tests that control the
# driver, or count its calls, are left out. What was run goes to docs/gpu.md.
set -u
build=$(cd "${BUILD:-build/plain}" && pwd) || exit 1
export COWSHED_CUDA_DRIVER=${COWSHED_CUDA_DRIVER:-libcuda.so.1}
"$build/bin/cowshed" doctor 2>/dev/null | grep -i cuda
if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1 && [ "$COWSHED_CUDA_DRIVER" = libcuda.so.1 ]; then
	echo 'check-gpu: no NVIDIA device here'
	exit 77
fi
command -v nvidia-smi >/dev/null &&
	nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
bad=0
for t in test_cuda_copy test_cuda_order; do
	"$build/tests/$t" || bad=1
	command -v compute-sanitizer >/dev/null || continue
	# One process: the sanitizer sees what it starts with.
	for tool in memcheck racecheck; do
		CK_FORK=no compute-sanitizer --tool "$tool" --error-exitcode 1 \
			"$build/tests/$t" || bad=1
	done
done
exit $bad
