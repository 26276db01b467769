#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Instructions of copies and conversions on aarch64, beside memcpy's: counted by qemu-user, which
# runs one instruction after the other and says a line for each. No times: an emulator has none.
#
# arm.sh: builds for aarch64 in build/arm-bench, and prints a line a case.
set -eu
cd "$(dirname "$0")/.."
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) &&
	command -v aarch64-linux-gnu-gcc >/dev/null || {
	echo '  arm: skipped (no qemu-user or no aarch64-linux-gnu-gcc)'
	exit 0
}
tree=$PWD/build/arm-bench
mkdir -p "$tree"
git ls-files -z -co --exclude-standard | tar c --null --ignore-failed-read -T - | tar x -C "$tree"
env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS NO_INSTALL=1 make -s -j2 -C "$tree" NVCC= MODE=plain \
	CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar build/plain/bench/arm_copies

single=-singlestep # QEMU 8.1 has another name for it
"$qemu" -help | grep -q -- -one-insn-per-tb && single=-one-insn-per-tb
count() { # CASE TIMES
	"$qemu" -L /usr/aarch64-linux-gnu -E COWSHED_OPTIONS= $single -d exec,nochain \
		-D /dev/stdout "$tree/build/plain/bench/arm_copies" "$@" | grep -c '^Trace'
}
echo '| 65 536 elements | instructions | of memcpy of 256 KiB |'
echo '| --- | --- | --- |'
for case in memcpy float32 'float32, transposed' 'uint8, transposed' 'float32 to float16' \
	'float16 to float32' 'float32 to bfloat16' 'uint8 to float32'; do
	one=$(($(count "$case" 3) - $(count "$case" 1)))
	one=$((one / 2))
	[ "$case" != memcpy ] || base=$one
	echo "| $case | $one | $(awk "BEGIN { printf \"%.2f\", $one / $base }") |"
done
