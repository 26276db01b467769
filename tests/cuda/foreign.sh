#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What make check-gpu does, on a driver that takes no orders from tests: a copy of the
# reference driver by another name, in a copied build, with an empty PATH but for the
# system's. So the day a GPU is there the tests are not what fails.
set -u
build=${BUILD:-build/plain}
if [ ! -e "$build/tests/driver/libcuda.so.1" ]; then
	echo 'skip foreign: no reference driver in this build'
	exit 77
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/plain/bin" "$tmp/plain/lib" "$tmp/plain/tests/"{cuda,hostile}
cp "$build/bin/cowshed" "$tmp/plain/bin"
cp "$build"/lib/libcowshed{,-tensor,-cuda}.so.0 "$tmp/plain/lib"
cp "$build"/tests/cuda/test_* "$tmp/plain/tests/cuda"
cp "$build"/tests/hostile/test_cuda "$tmp/plain/tests/hostile"
cp "$build/tests/driver/libcuda.so.1" "$tmp/libother.so"
cp scripts/check-gpu.sh "$tmp"
bad=0

# gpu NAME WANT WORDS VARIABLE=VALUE...: exit status and a line of the run
gpu() {
	local name=$1 want=$2 words=$3 got
	shift 3
	(cd "$tmp" && env -u COWSHED_CUDA_DRIVER -u T PATH=/usr/bin:/bin BUILD=plain \
		COWREF_MEMORY=4294967296 COWREF_MAX_HANDLES=2000 "$@" \
		bash check-gpu.sh) >"$tmp/log" 2>&1
	got=$?
	if [ "$got" -eq "$want" ] && grep -q "$words" "$tmp/log"; then
		echo "ok $name"
	else
		echo "not ok $name: exit status $got"
		tail -n 40 "$tmp/log"
		bad=1
	fi
}

gpu foreign.all 0 ' 0 failed' COWSHED_CUDA_DRIVER="$tmp/libother.so"
gpu foreign.one-device 0 'skip between_devices needs two devices' \
	COWSHED_CUDA_DRIVER="$tmp/libother.so" COWREF_DEVICES=1 T=order
gpu foreign.fails 1 'not ok  cuda/test_memory_trace' \
	COWSHED_CUDA_DRIVER="$tmp/libother.so" COWREF_FAIL=cuMemCreate:1:999 T=trace
gpu foreign.none 77 'no CUDA driver' COWSHED_CUDA_DRIVER="$tmp/not-there.so"
gpu foreign.strict 1 'no CUDA driver' COWSHED_CUDA_DRIVER="$tmp/not-there.so" STRICT=1
exit $bad
