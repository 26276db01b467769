#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The library against musl, and all of it for aarch64, under qemu's emulation of system calls as far
# as that goes: it takes most advice on memory without following it, which the engine finds out
# (memfd/probe.c), and knows no clone() of one address space.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=

# build NAME MAKE-ARGUMENTS...: in a copy of the tree. Machine code for devices is left out.
build() {
	local name=$1
	shift
	mkdir "$work/$name"
	if [ -e .git ]; then git ls-files -z -co --exclude-standard; else
		find . -path ./build -prune -o -type f -print0
	fi | tar c --null --ignore-failed-read -T - | tar x -C "$work/$name"
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS NO_INSTALL=1 make -s -j2 -C "$work/$name" NVCC= \
		MODE=plain "$@" >"$work/out" 2>&1 && ! grep -q 'warning:' "$work/out" && return
	echo "not ok $name: make" && tail -n 20 "$work/out"
	failed=1
	return 1
}

# runs NAME EXPRESSION COMMAND...: its last line
runs() {
	local name=$1 expected=$2
	shift 2
	if timeout 200 "$@" >"$work/out" 2>&1 && tail -n 1 "$work/out" | grep -Exq "$expected"; then
		echo "ok $name"
	else
		echo "not ok $name" && tail -n 5 "$work/out"
		failed=1
	fi
}

examples='build/plain/examples/hello build/plain/examples/fork'
if ! command -v musl-gcc >/dev/null; then
	echo 'skip musl no musl-gcc (musl-tools)'
elif build musl CC=musl-gcc CFLAGS="-idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)" \
	$examples; then
	cd "$work/musl/build/plain" || exit 1
	runs 'musl: hello' 'of 67108864 bytes, b has 4096 of its own' examples/hello
	runs 'musl: fork' 'the fork froze 67108864 bytes and copied 0' examples/fork
	cd - >/dev/null || exit 1
fi

cross=aarch64-linux-gnu
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64)
programs='zero realloc forks descendants idle_threads'
if [ -z "$qemu" ] || ! command -v $cross-gcc >/dev/null; then
	echo "skip aarch64 no $cross-gcc or no qemu-user"
elif build aarch64 CC=$cross-gcc AR=$cross-ar all \
	$(printf 'build/plain/tests/programs/%s ' $programs); then
	cd "$work/aarch64/build/plain" || exit 1
	run=("$qemu" -L /usr/$cross)
	runs 'aarch64: hello' 'of 67108864 bytes, b has (4096|67108864) of its own' "${run[@]}" examples/hello
	for program in $programs; do
		runs "aarch64: $program" "$program: done" "${run[@]}" -E COWSHED_OPTIONS=threshold=65536 \
			-E LD_PRELOAD="$PWD/lib/libcowshed-preload.so" "tests/programs/$program"
	done
	cd - >/dev/null || exit 1
fi
[ -z "$failed" ]
