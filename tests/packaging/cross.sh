#!/bin/bash
# SPDX-License-Identifier: MIT
#
# All that is installed compiles for aarch64, without a warning. The objects stay in build/aarch64.
# long_platforms.sh also links and runs them.
set -u
if command -v aarch64-linux-gnu-gcc >/dev/null; then
	cc=aarch64-linux-gnu-gcc
elif [ -x build/wheels/bin/aarch64-cc ]; then
	cc=$PWD/build/wheels/bin/aarch64-cc
elif command -v zig >/dev/null; then
	cc='zig cc -target aarch64-linux-gnu'
else
	echo 'skip cross no aarch64-linux-gnu-gcc, and no zig (make wheels fetches one)'
	exit 77
fi
out=$(env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u MODE NO_INSTALL=1 make -s -j2 CC="$cc" \
	B=build/aarch64 objects 2>&1)
status=$?
if [ $status -eq 0 ] && [[ $out != *warning:* ]]; then
	echo "ok cross: compiled for aarch64 by $cc"
else
	echo 'not ok cross' && tail -n 20 <<<"$out"
	exit 1
fi
