#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A third party's device as a third party has it: the fake device (fake.c) is built as a
# library of its own against an installed copy, with what pkg-config says and nothing of
# this tree in reach. Then all that tests devices is built against the same copy, and runs
# with that library: copies between the device, the other one, the CPU and meta.
set -u
build=${BUILD:-$PWD/build/plain}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cc=${CC:-$(command -v gcc || command -v cc || command -v clang)}
if [ -z "$cc" ] || ! pkg-config --exists check 2>/dev/null; then
	echo 'skip a device built against an installed copy: no compiler, pkg-config or check'
	exit 77
fi

must() { # NAME COMMAND...
	local name=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		echo "ok $name"
	else
		echo "not ok $name"
		cat "$work/out"
		exit 1
	fi
}

# As a packager does it. The build is there; nothing is compiled for that.
must 'make install' env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$root" -s \
	MODE="${MODE:-plain}" DESTDIR="$work/there" prefix=/opt/cowshed install
opt=$work/there/opt/cowshed
# As a user does it: the only way to the headers and the libraries.
export PKG_CONFIG_PATH=$opt/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/there
flags=$(pkg-config --cflags cowshed-tensor) libs=$(pkg-config --libs cowshed-tensor)
unset PKG_CONFIG_SYSROOT_DIR

mkdir -p "$work/device/tests/device"
cp "$root"/tests/device/*.[ch] "$work/device/tests/device"
cd "$work/device" || exit 1
must 'a device built against the installed headers alone' "$cc" -std=gnu11 -D_GNU_SOURCE= \
	-Wall -Wextra -Werror -O1 -g -shared -fPIC -I. $flags -o libfake.so tests/device/fake.c $libs

# The tests are not a third party, but see the same headers: -Iinclude is not among these.
mkdir -p "$work/tests/tests"
cp -r "$root/tests/support" "$work/tests/tests"
cp -r "$root/tests/device" "$work/tests/tests"
cd "$work/tests" || exit 1
for name in test_device test_model; do
	must "$name, built against the installed copy" "$cc" -std=gnu11 -D_GNU_SOURCE= -O1 -g \
		-I. $flags $(pkg-config --cflags check) -o "$name" "$root/tests/tensor/$name.c" \
		tests/support/{support,child,counting,footprint,left,tensors}.c \
		"$work/device/libfake.so" $libs $(pkg-config --libs check) -lpthread \
		-Wl,-rpath,"$work/device" -Wl,-rpath,"$opt/lib"
	must "$name with a third party's device" "./$name"
	ldd "./$name" | grep -q "$opt/lib/libcowshed-tensor.so.0" || {
		echo "not ok $name uses the installed library"
		exit 1
	}
done
