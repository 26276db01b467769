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
	CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar build/plain/bench/tensors

single=-singlestep # QEMU 8.1 has another name for it
"$qemu" -help | grep -q -- -one-insn-per-tb && single=-one-insn-per-tb
count() { # copy|memcpy TIMES PATTERN
	echo "$3" | "$qemu" -L /usr/aarch64-linux-gnu -E COWSHED_OPTIONS= $single -d exec,nochain \
		-D /dev/stdout "$tree/build/plain/bench/tensors" "$1" "$2" | grep -c '^Trace'
}
echo '| 65 536 elements | instructions | of memcpy of 256 KiB |'
echo '| --- | --- | --- |'
# What a program takes to start is in both numbers of times.
while read -r how types layout name; do
	row='65536 1 1 -'
	[ "$layout" != turned ] || row='256,256 1,256 256,1 -'
	pattern="$name $(echo "$types" | tr / ' ') $row"
	one=$((($(count "$how" 3 "$pattern") - $(count "$how" 1 "$pattern")) / 2))
	[ "$how" != memcpy ] || base=$one
	echo "| $name | $one | $(awk "BEGIN { printf \"%.2f\", $one / $base }") |"
done <<'END'
memcpy float32/float32 flat memcpy
copy float32/float32 flat float32
copy float32/float32 turned float32,transposed
copy uint8/uint8 turned uint8,transposed
copy float32/float16 flat float32-to-float16
copy float16/float32 flat float16-to-float32
copy float32/bfloat16 flat float32-to-bfloat16
copy uint8/float32 flat uint8-to-float32
END
